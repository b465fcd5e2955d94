/* tests/support/folder.h - a separate folder for each test of a cmocka group, created before it and removed after
 * it. */
#ifndef TESTS_SUPPORT_FOLDER_H
#define TESTS_SUPPORT_FOLDER_H

extern char folder[256];

/* Returns the path of a file in it, which need not exist. Valid for three further calls. */
const char *folder_path(const char *name);

int folder_set_up(void **state);
int folder_tear_down(void **state);

#define FOLDER_TEST(f) cmocka_unit_test_setup_teardown(f, folder_set_up, folder_tear_down)

#endif
