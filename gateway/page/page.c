/* gateway/page/page.c - see page.h. */
#include "gateway/page/page.h"

#include <string.h>

/* The bytes of a file of this folder, included by the assembler; the Makefile recompiles when one changes. */
#define EMBED(name, file)                                         \
    __asm__(".pushsection .rodata\n"                              \
            ".hidden page_" #name "\n"                            \
            ".hidden page_" #name "_end\n"                        \
            ".global page_" #name "\n"                            \
            "page_" #name ": .incbin \"gateway/page/" file "\"\n" \
            ".global page_" #name "_end\n"                        \
            "page_" #name "_end:\n"                               \
            ".popsection");                                       \
    extern const char page_##name[], page_##name##_end[]

EMBED(index, "index.html");
EMBED(style, "style.css");
EMBED(icon, "icon.svg");
EMBED(main, "main.js");
EMBED(ask, "ask.js");
EMBED(chat, "chat.js");
EMBED(markdown, "markdown.js");
EMBED(samples, "samples.js");
EMBED(live, "live.js");

static const struct file {
    const char *name, *type, *from, *to;
} files[] = {
    {"style.css", "text/css; charset=utf-8", page_style, page_style_end},
    {"icon.svg", "image/svg+xml", page_icon, page_icon_end},
    {"main.js", "text/javascript; charset=utf-8", page_main, page_main_end},
    {"ask.js", "text/javascript; charset=utf-8", page_ask, page_ask_end},
    {"chat.js", "text/javascript; charset=utf-8", page_chat, page_chat_end},
    {"markdown.js", "text/javascript; charset=utf-8", page_markdown, page_markdown_end},
    {"samples.js", "text/javascript; charset=utf-8", page_samples, page_samples_end},
    {"live.js", "text/javascript; charset=utf-8", page_live, page_live_end},
};

/* The page loads from and connects to this gateway only; it has no inline scripts or styles, so none that a model's
 * text may contain is run. */
static const char fields[] = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
                             "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'\r\n"
                             "X-Content-Type-Options: nosniff\r\n"
                             "Referrer-Policy: no-referrer\r\n"
                             "Cache-Control: no-cache\r\n";

void page_start(struct exchange *x)
{
    x->fields = fields;
    exchange_answer(x, 200, "text/html; charset=utf-8", page_index, (size_t)(page_index_end - page_index));
}

void page_file(struct exchange *x)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        const struct file *f = &files[i];
        if (strcmp(f->name, x->tail[0]) == 0) {
            x->fields = fields;
            exchange_answer(x, 200, f->type, f->from, (size_t)(f->to - f->from));
            return;
        }
    }
    struct fault f = fault_make(404, "", "the page has no file %.100s", x->tail[0]);
    exchange_fail(x, &f);
}
