/* tests/unit/test_parties.c - the names of a gateway's users, and the count of each one's requests. */
#include "gateway/exchange/parties.h"
#include "tests/unit/unit.h"

static void names(void **state)
{
    (void)state;
    static const struct key named = {.text = "secret", .name = "ann", .number = 1};
    static const struct key nameless = {.text = "secret", .number = 7};
    static const struct {
        const struct key *key;
        const char *peer, *name;
    } cases[] = {
        {&named, "10.1.2.3", "ann"},
        {&nameless, "unix", "key 7"},
        {NULL, "10.1.2.3", "10.1.2.3"},
        {NULL, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {NULL, "::1", "::/64"},
        {NULL, "fe80::1:2%eth0", "fe80::/64"},
        {NULL, "fe80::3%eth0", "fe80::/64"},
        {NULL, "unix", ""},
    };
    char name[POOL_PARTY_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        party_name(cases[i].key, cases[i].peer, name);
        assert_string_equal(name, cases[i].name);
    }
}

static void counts(void **state)
{
    (void)state;
    struct parties p = {.most = 2};
    for (int round = 0; round < 2; round++) {
        assert_true(!parties_full(&p, "ann") && parties_enter(&p, "ann"));
        assert_true(!parties_full(&p, "ann") && parties_enter(&p, "ann") && parties_enter(&p, "bob"));
        assert_true(parties_full(&p, "ann") && !parties_full(&p, "bob"));
        parties_leave(&p, "ann");
        assert_true(!parties_full(&p, "ann") && parties_enter(&p, "ann"));
        parties_leave(&p, "ann");
        parties_leave(&p, "ann");
        parties_leave(&p, "bob");
        assert_null(p.tree);
    }
    p.most = 0;
    for (int i = 0; i < 3; i++)
        assert_true(!parties_full(&p, "ann") && parties_enter(&p, "ann"));
    for (int i = 0; i < 3; i++)
        parties_leave(&p, "ann");
    assert_null(p.tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
