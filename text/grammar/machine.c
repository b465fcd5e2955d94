/* text/grammar/machine.c - see machine.h. */
#include "text/grammar/machine.h"
#include "text/grammar/machine_describe.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH   256   /* frames of a stack: some 64 levels of JSON */
#define MAX_PLACES  4096  /* of a state */
#define MAX_STATES  16384 /* states during a walk over a vocabulary; numbers of 16 bits */
#define MAX_STEPS   262144
#define MAX_BEHIND  65536
#define MAX_KEPT    1048576 /* places of all states */
#define MAX_FRAMES  65536
#define MAX_ROWS    2048
#define ROW_FROM    12   /* a state with this many steps gets a row */
#define TIDY_STATES 4096 /* with more than this machine_tidy forgets */
#define TIDY_STEPS  65536

/* Every place has a node, and every counting node a frame; the analyzer does not follow array_grow().
 * NOLINTBEGIN(clang-analyzer-core.NullDereference,clang-analyzer-core.NonNullParamChecker) */

static uint32_t mix(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32) ^ (uint32_t)x;
}

static uint32_t hash_frame(const struct machine *m, int i)
{
    const struct machine_frame *f = &m->frame[i];
    return mix((uint64_t)(uint32_t)f->below << 32 ^ (uint64_t)(uint32_t)f->count << 20 ^ (uint32_t)f->node);
}

static uint32_t hash_places(const struct machine_place *place, int n, bool complete)
{
    uint32_t hash = complete ? 1 : 0;
    for (int i = 0; i < n; i++)
        hash = mix((uint64_t)hash << 32 ^ (uint64_t)(uint32_t)place[i].frame << 24 ^ (uint32_t)place[i].node);
    return hash;
}

static uint32_t hash_state(const struct machine *m, int i)
{
    const struct machine_state *s = &m->state[i];
    return hash_places(m->place + s->first, s->n, s->complete);
}

static uint32_t hash_place(const struct machine_place *place)
{
    return mix((uint64_t)(uint32_t)place->frame << 32 ^ (uint32_t)place->node);
}

static uint32_t hash_behind(const struct machine *m, int i)
{
    return hash_place(&m->behind[i].place);
}

static uint32_t hash_key(int state, int byte)
{
    return mix((uint64_t)(uint32_t)state << 8 ^ (uint32_t)byte);
}

static uint32_t hash_step(const struct machine *m, int i)
{
    return hash_key(m->step[i].state, m->step[i].byte);
}

/* ---- tables ---- */

static void put_entry(struct machine_table *t, uint32_t hash, int32_t i)
{
    while (t->slot[hash & t->mask] >= 0)
        hash++;
    t->slot[hash & t->mask] = i;
}

/* Makes room for one more than n, and adds the entry. */
static int table_put(struct machine *m, struct machine_table *t, int n,
                     uint32_t (*hash_of)(const struct machine *, int))
{
    if (t->slot == NULL || 2 * (uint32_t)(n + 1) > t->mask) {
        uint32_t size = t->slot == NULL ? 512 : 2 * (t->mask + 1);
        int32_t *slot = malloc(size * sizeof *slot);
        if (slot == NULL)
            return ERR(m->e, ERR_MEMORY, "out of host memory: states of a grammar");
        memset(slot, 0xff, size * sizeof *slot);
        free(t->slot);
        *t = (struct machine_table){slot, size - 1};
        for (int i = 0; i < n; i++)
            put_entry(t, hash_of(m, i), i);
    }
    put_entry(t, hash_of(m, n), n);
    return 0;
}

static int array_enlarge(struct machine *m, void **array, int *capacity, int wanted, size_t size)
{
    int bigger = 2 * *capacity > wanted ? 2 * *capacity : wanted + 128;
    void *grown = realloc(*array, (size_t)bigger * size);
    if (grown == NULL)
        return ERR(m->e, ERR_MEMORY, "out of host memory: states of a grammar");
    *array = grown;
    *capacity = bigger;
    return 0;
}

static inline int array_grow(struct machine *m, void **array, int *capacity, int wanted, size_t size)
{
    return wanted <= *capacity ? 0 : array_enlarge(m, array, capacity, wanted, size);
}

/* ---- stacks ---- */

/* The stack with this frame on top; -1: too deep, or no memory. Equal stacks have equal numbers. */
static int push(struct machine *m, int below, int node, int count)
{
    const struct machine_frame wanted = {below, node, count, below == MACHINE_NO_FRAME ? 1 : m->frame[below].depth + 1};
    m->lossy = m->lossy || m->n_frames == MAX_FRAMES;
    if (wanted.depth > MAX_DEPTH || m->n_frames == MAX_FRAMES ||
        array_grow(m, (void **)&m->frame, &m->frame_capacity, m->n_frames + 1, sizeof *m->frame) != 0)
        return -1;
    m->frame[m->n_frames] = wanted; /* kept only if it is new */
    uint32_t hash = hash_frame(m, m->n_frames);
    for (; m->frames.slot != NULL && m->frames.slot[hash & m->frames.mask] >= 0; hash++) {
        int known = m->frames.slot[hash & m->frames.mask];
        if (memcmp(&m->frame[known], &wanted, sizeof wanted) == 0)
            return known;
    }
    if (table_put(m, &m->frames, m->n_frames, hash_frame) != 0)
        return -1;
    return m->n_frames++;
}

/* ---- making a state ---- */

static int compare_places(const void *left, const void *right)
{
    const struct machine_place *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return (a->frame > b->frame) - (a->frame < b->frame);
}

/* Whether the place is not in the work yet; adds it. */
static bool is_new(struct machine *m, struct machine_place place)
{
    uint32_t hash = hash_place(&place);
    struct machine_seen *seen;
    for (; (seen = &m->seen[hash & m->seen_mask])->round == m->round; hash++)
        if (seen->place.node == place.node && seen->place.frame == place.frame)
            return false;
    *seen = (struct machine_seen){place, m->round};
    return true;
}

/* Doubles the table and inserts the work's places again. */
static int grow_seen(struct machine *m)
{
    uint32_t size = m->seen == NULL ? 256 : 2 * (m->seen_mask + 1);
    struct machine_seen *seen = calloc(size, sizeof *seen);
    if (seen == NULL)
        return ERR(m->e, ERR_MEMORY, "out of host memory: states of a grammar");
    free(m->seen);
    m->seen = seen;
    m->seen_mask = size - 1;
    m->round = 1;
    for (int i = 0; i < m->n_work; i++)
        is_new(m, m->work[i]);
    return 0;
}

static void begin_work(struct machine *m)
{
    m->n_work = 0;
    m->work_complete = false;
    if (++m->round == 0) { /* after 2^32 states */
        memset(m->seen, 0, (size_t)(m->seen_mask + 1) * sizeof *m->seen);
        m->round = 1;
    }
}

static void add_work(struct machine *m, int node, int frame)
{
    if (m->n_work == MAX_PLACES || m->effort >= m->effort_limit ||
        array_grow(m, (void **)&m->work, &m->work_capacity, m->n_work + 1, sizeof *m->work) != 0 ||
        (2 * (uint32_t)(m->n_work + 1) > m->seen_mask && grow_seen(m) != 0))
        return;
    m->work[m->n_work] = (struct machine_place){node, frame};
    m->n_work += is_new(m, m->work[m->n_work]);
}

/* Advances the topmost counter; -1: it is at its max. Above min, without a max, all numbers are equivalent. */
static int tick(struct machine *m, int frame)
{
    struct machine_frame f = m->frame[frame];
    const struct graph_node *counter = &m->graph->node[f.node];
    if (counter->max >= 0 ? f.count >= counter->max : f.count >= counter->min)
        return counter->max >= 0 ? -1 : frame;
    return push(m, f.below, f.node, f.count + 1);
}

/* A call whose return is the end of the caller's rule leaves no frame. */
static int call(struct machine *m, int node, int frame)
{
    int behind = m->graph->node[node].next;
    if (m->graph->node[behind].kind == GRAPH_RETURN)
        return frame;
    int top = push(m, frame, behind, 0);
    return top < 0 ? -2 : top;
}

/* A node that reads no byte: appends its successors to the work. */
static void follow(struct machine *m, struct machine_place at)
{
    const struct graph_node *node = &m->graph->node[at.node];
    const struct machine_frame *top = at.frame >= 0 ? &m->frame[at.frame] : NULL;
    int frame = at.frame;
    switch ((enum graph_node_kind)node->kind) {
    case GRAPH_SPLIT:
        if (node->other >= 0)
            add_work(m, node->other, frame);
        break;
    case GRAPH_CALL:
        frame = call(m, at.node, frame);
        if (frame != -2)
            add_work(m, node->other, frame);
        return;
    case GRAPH_RETURN:
        if (top == NULL)
            m->work_complete = true;
        else
            add_work(m, top->node, top->below);
        return;
    case GRAPH_COUNT:
        frame = push(m, frame, at.node, 0);
        if (frame < 0)
            return;
        break;
    case GRAPH_TICK:
        frame = tick(m, frame);
        if (frame < 0)
            return;
        break;
    case GRAPH_UNCOUNT:
        if (top->count < m->graph->node[top->node].min)
            return;
        frame = top->below;
        break;
    case GRAPH_FREE:
        break;
    case GRAPH_BYTES:
    case GRAPH_FAIL:
        return;
    }
    if (node->next >= 0)
        add_work(m, node->next, frame);
}

/* Usually few, and nearly sorted. */
static void sort_places(struct machine_place *place, int n)
{
    enum { FEW = 40 };
    if (n > FEW)
        qsort(place, (size_t)n, sizeof *place, compare_places);
    for (int i = 1; i < n && n <= FEW; i++) {
        struct machine_place one = place[i];
        int k = i;
        for (; k > 0 && compare_places(&place[k - 1], &one) > 0; k--)
            place[k] = place[k - 1];
        place[k] = one;
    }
}

/* Finds all places reachable from the work that read a byte or head a loop; leaves them in m->work[0, n), sorted, and
 * returns n. */
static int close_work(struct machine *m)
{
    int n = 0;
    for (int i = 0; i < m->n_work; i++, m->effort++)
        follow(m, m->work[i]);
    for (int i = 0; i < m->n_work; i++) {
        int kind = m->graph->node[m->work[i].node].kind;
        if (kind == GRAPH_BYTES || kind == GRAPH_FREE)
            m->work[n++] = m->work[i];
    }
    sort_places(m->work, n);
    return n;
}

/* The state of the n places in m->work, an existing one if possible. */
static int intern(struct machine *m, int n)
{
    if (n == 0 && !m->work_complete)
        return MACHINE_DEAD;
    uint32_t hash = hash_places(m->work, n, m->work_complete);
    for (; m->states.slot != NULL && m->states.slot[hash & m->states.mask] >= 0; hash++) {
        int known = m->states.slot[hash & m->states.mask];
        const struct machine_state *s = &m->state[known];
        if (s->n == n && s->complete == m->work_complete &&
            memcmp(m->place + s->first, m->work, (size_t)n * sizeof *m->work) == 0)
            return known;
    }
    m->lossy = m->lossy || m->n_states == MAX_STATES || m->n_places + n > MAX_KEPT;
    if (m->lossy || array_grow(m, (void **)&m->state, &m->state_capacity, m->n_states + 1, sizeof *m->state) != 0 ||
        array_grow(m, (void **)&m->place, &m->place_capacity, m->n_places + n, sizeof *m->place) != 0)
        return MACHINE_DEAD;
    struct machine_state *s = &m->state[m->n_states];
    *s = (struct machine_state){.first = m->n_places, .n = n, .complete = m->work_complete, .row = -1};
    memcpy(m->place + m->n_places, m->work, (size_t)n * sizeof *m->work);
    m->n_places += n;
    machine_describe(m, s);
    if (table_put(m, &m->states, m->n_states, hash_state) != 0)
        return MACHINE_DEAD;
    return m->n_states++;
}

/* ---- steps ---- */

static int remember_in_table(struct machine *m, int state, int byte, int to)
{
    if (m->n_steps == MAX_STEPS ||
        array_grow(m, (void **)&m->step, &m->step_capacity, m->n_steps + 1, sizeof *m->step) != 0)
        return to;
    m->step[m->n_steps] = (struct machine_edge){state, byte, to};
    if (table_put(m, &m->steps, m->n_steps, hash_step) == 0)
        m->n_steps++;
    return to;
}

/* The largest range around a byte that each place of a state reads either completely or not at all. */
struct byte_range {
    int byte, low, high;
};

static void narrow(struct byte_range *range, const struct graph_node *node)
{
    bool within = range->byte >= node->low && range->byte <= node->high;
    int low = within ? node->low : range->byte > node->high ? node->high + 1 : 0;
    int high = within ? node->high : range->byte < node->low ? node->low - 1 : 255;
    range->low = range->low > low ? range->low : low;
    range->high = range->high < high ? range->high : high;
}

/* A state with many steps gets a row for them. */
static void add_row(struct machine *m, struct machine_state *s)
{
    if (m->n_rows == MAX_ROWS || array_grow(m, (void **)&m->row, &m->row_capacity, m->n_rows + 1, sizeof *m->row) != 0)
        return;
    for (int byte = 0; byte < 256; byte++)
        m->row[m->n_rows][byte] = MACHINE_UNKNOWN;
    s->row = m->n_rows++;
}

/* Stores the step for all bytes of a range, which lead to the same state. */
static int remember_step(struct machine *m, int state, const struct byte_range *range, int to)
{
    struct machine_state *s = &m->state[state];
    if ((++s->n_steps == ROW_FROM || range->low < range->high) && s->row < 0)
        add_row(m, s);
    if (s->row < 0)
        return remember_in_table(m, state, range->byte, to);
    for (int byte = range->low; byte <= range->high; byte++)
        m->row[s->row][byte] = (int16_t)to;
    return to;
}

/* The state of everything reachable from a single place. Many steps lead there: every character's last byte leads to
 * the head of its loop. */
static int close_place(struct machine *m)
{
    const struct machine_place place = m->work[0];
    uint32_t hash = hash_place(&place);
    for (; m->behinds.slot != NULL && m->behinds.slot[hash & m->behinds.mask] >= 0; hash++) {
        const struct machine_behind *known = &m->behind[m->behinds.slot[hash & m->behinds.mask]];
        if (known->place.node == place.node && known->place.frame == place.frame)
            return known->state;
    }
    int state = intern(m, close_work(m));
    if (machine_tired(m) || m->lossy || m->n_behind == MAX_BEHIND ||
        array_grow(m, (void **)&m->behind, &m->behind_capacity, m->n_behind + 1, sizeof *m->behind) != 0)
        return state;
    m->behind[m->n_behind] = (struct machine_behind){place, state};
    if (table_put(m, &m->behinds, m->n_behind, hash_behind) == 0)
        m->n_behind++;
    return state;
}

static int make_step(struct machine *m, int state, struct byte_range *range)
{
    struct machine_state from = m->state[state];
    begin_work(m);
    for (int i = 0; i < from.n; i++) {
        struct machine_place at = m->place[from.first + i];
        const struct graph_node *node = &m->graph->node[at.node];
        if (node->kind != GRAPH_BYTES)
            continue;
        narrow(range, node);
        if (range->byte >= node->low && range->byte <= node->high)
            add_work(m, node->next, at.frame);
    }
    m->effort += (uint64_t)from.n;
    return m->n_work == 1 ? close_place(m) : intern(m, close_work(m));
}

int machine_make_step(struct machine *m, int state, unsigned char byte)
{
    if (!machine_may(m, state, byte))
        return MACHINE_DEAD;
    uint32_t hash = hash_key(state, byte);
    for (; m->steps.slot != NULL && m->steps.slot[hash & m->steps.mask] >= 0; hash++) {
        const struct machine_edge *known = &m->step[m->steps.slot[hash & m->steps.mask]];
        if (known->state == state && known->byte == byte)
            return known->to;
    }
    if (m->e->code != ERR_NONE || machine_tired(m))
        return MACHINE_DEAD;
    struct byte_range range = {byte, 0, 255};
    int to = make_step(m, state, &range);
    if (machine_tired(m))
        return MACHINE_DEAD;
    return m->lossy ? to : remember_step(m, state, &range, to);
}

int machine_begin(struct machine *m, int start)
{
    begin_work(m);
    add_work(m, start, MACHINE_NO_FRAME);
    return intern(m, close_work(m));
}

void machine_rest(struct machine *m, uint64_t effort)
{
    m->effort = 0;
    m->effort_limit = effort;
}

bool machine_tired(const struct machine *m)
{
    return m->effort >= m->effort_limit;
}

/* ---- memory ---- */

int machine_open(struct machine *m, const struct graph *graph, struct err *e)
{
    *m = (struct machine){.graph = graph, .effort_limit = UINT64_MAX, .e = e};
    if (grow_seen(m) == 0 && array_grow(m, (void **)&m->place, &m->place_capacity, 1, sizeof *m->place) == 0)
        return 0;
    machine_close(m);
    return -1;
}

void machine_close(struct machine *m)
{
    free(m->frame);
    free(m->place);
    free(m->state);
    free(m->step);
    free(m->row);
    free(m->frames.slot);
    free(m->states.slot);
    free(m->steps.slot);
    free(m->behind);
    free(m->behinds.slot);
    free(m->work);
    free(m->seen);
    *m = (struct machine){0};
}

/* Copies a stack of the old machine into this one. */
static int copy_stack(struct machine *m, const struct machine_frame *old, int frame)
{
    int path[MAX_DEPTH], n = 0, copy = MACHINE_NO_FRAME;
    for (; frame != MACHINE_NO_FRAME && n < MAX_DEPTH; frame = old[frame].below)
        path[n++] = frame;
    while (n-- > 0)
        copy = push(m, copy, old[path[n]].node, old[path[n]].count);
    return copy;
}

int machine_adopt(struct machine *m, const struct machine *old, int state)
{
    if (state < 0)
        return state;
    const struct machine_state *s = &old->state[state];
    begin_work(m);
    for (int i = 0; i < s->n; i++)
        add_work(m, old->place[s->first + i].node, copy_stack(m, old->frame, old->place[s->first + i].frame));
    m->work_complete = s->complete;
    qsort(m->work, (size_t)m->n_work, sizeof *m->work, compare_places);
    return intern(m, m->n_work);
}

bool machine_wants_tidying(const struct machine *m)
{
    return m->lossy || m->n_states >= TIDY_STATES || m->n_steps >= TIDY_STEPS || m->n_frames >= MAX_FRAMES / 2 ||
           m->n_places >= MAX_KEPT / 4;
}

bool machine_is_crowded(const struct machine *m)
{
    return m->n_states >= TIDY_STATES / 4 || m->n_frames >= MAX_FRAMES / 8 || m->n_places >= MAX_KEPT / 32;
}

void machine_tidy(struct machine *m, int *const *state, int n)
{
    struct machine fresh;
    bool opened = machine_open(&fresh, m->graph, m->e) == 0;
    for (int i = 0; i < n; i++)
        *state[i] = opened ? machine_adopt(&fresh, m, *state[i]) : MACHINE_DEAD;
    if (!opened)
        return;
    fresh.n_tidied = m->n_tidied + 1;
    fresh.effort = m->effort;
    fresh.effort_limit = m->effort_limit;
    machine_close(m);
    *m = fresh;
}

bool machine_matches(const struct graph *graph, int start, const char *text, size_t bytes, struct err *e)
{
    struct machine m;
    if (machine_open(&m, graph, e) != 0)
        return false;
    int state = machine_begin(&m, start);
    for (size_t i = 0; i < bytes && state >= 0; i++)
        state = machine_next(&m, state, (unsigned char)text[i]);
    bool matches = state >= 0 && m.state[state].complete;
    machine_close(&m);
    return matches;
}

/* NOLINTEND(clang-analyzer-core.NullDereference,clang-analyzer-core.NonNullParamChecker) */
