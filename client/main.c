/* client/main.c - lockstep-client: a program of its own, without MPI, that talks to `lockstep serve`. */
#include "base/log.h"
#include "base/standard_streams.h"
#include "client/ask.h"
#include "client/bench.h"
#include "client/chat.h"
#include "client/interrupt.h"
#include "client/options.h"
#include "client/send.h"
#include "client/top.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int run_command(struct client_options *o, struct err *e)
{
    struct connection c = {0};
    interrupt_catch();
    if (connection_open(&c, &client_options_call(o)->connection, e) == 0) {
        switch (o->command) {
        case CLIENT_SEND:
            (void)send_file(&c, &o->send, e);
            break;
        case CLIENT_BENCH:
            (void)client_bench(&c, &o->bench, e);
            break;
        case CLIENT_CHAT:
            (void)client_chat(&c, &o->ask, e);
            break;
        case CLIENT_TOP:
            (void)client_top(&c, &o->top, e);
            break;
        case CLIENT_GENERATE:
        case CLIENT_OP:
        case CLIENT_TOKENIZE:
        case CLIENT_DETOKENIZE:
            (void)ask(&c, &o->ask, e);
            break;
        }
    }
    connection_close(&c);
    return e->code == ERR_NONE ? 0 : -1;
}

/* An earlier write that failed has left its mark, but not its reason. */
static void finish_output(struct err *e)
{
    int reason = fflush(stdout) != 0 ? errno : 0;
    if (e->code == ERR_NONE && (reason != 0 || ferror(stdout) != 0))
        (void)ERR(e, ERR_IO, "cannot write to standard output%s%s", reason != 0 ? ": " : "",
                  reason != 0 ? strerror(reason) : "");
}

int main(int argc, char **argv)
{
    struct client_options o;
    struct err e = {0};
    standard_streams_hold();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (client_options_parse(&o, argc, argv, &e) == 0) {
        if (o.version)
            printf("lockstep-client %s\n", LOCKSTEP_VERSION);
        else if (o.help)
            client_options_help(&o);
        else
            (void)run_command(&o, &e);
    }
    client_options_close(&o);
    finish_output(&e);
    if (interrupt_came() && (e.code == ERR_NONE || e.code == ERR_COMM))
        return INTERRUPT_STATUS;
    if (e.code != ERR_NONE)
        (void)fprintf(stderr, "lockstep-client: %s\n", e.text);
    return (int)e.code;
}
