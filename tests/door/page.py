"""tests/door/page.py - the gateway's page in a headless Chromium: a chat that streams and is stopped, hostile texts, the live view,
the key. Prints TAP.

usage: page.py BROWSER URL URL_WITH_KEY KEY FOLDER [PICTURES]
  URL        of a gateway in front of a model whose stories do not end
  FOLDER     for the browser's profile
  PICTURES   a folder for screenshots, for inspection
"""
import json
import os
import sys
import time
import urllib.request

from browser import Browser

program, url, guarded, key, folder = sys.argv[1:6]
pictures = sys.argv[6] if len(sys.argv) > 6 else None
n_cases = n_failed = 0


def check(name, good, found=""):
    global n_cases, n_failed
    n_cases += 1
    n_failed += not good
    if not good:
        print(f"# {found}"[:2000])
    print(f"{'ok' if good else 'not ok'} {n_cases} - {name}", flush=True)


def keep(page, name):
    if pictures is not None:
        page.picture(os.path.join(pictures, f"{name}.png"))


ANSWER = "[...document.querySelectorAll('.message.assistant .body')].at(-1)?.textContent ?? ''"
FOOT = "[...document.querySelectorAll('.message.assistant .foot')].at(-1)?.textContent ?? ''"
IDLE = "document.querySelector('#stop').hidden"


def set_field(page, name, value):
    page.run(f"(() => {{ const e = document.querySelector('#parameters [name={name}]'); e.value = {json.dumps(value)};"
             "e.dispatchEvent(new Event('input', {bubbles: true})); })()")


def running():
    with urllib.request.urlopen(url + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith("lockstep_num_requests_running{")]


def chats(page):
    page.go(url + "/")
    check("the models are listed", page.wait("document.querySelector('#model').value === 'lockstep-stories'"),
          page.run("document.querySelector('#notice').textContent"))
    keep(page, "empty")
    set_field(page, "max_tokens", "6")
    set_field(page, "temperature", "0")
    page.type("#prompt", "Tell me a story.")
    page.press("Enter", 13)
    check("Enter sends, and the answer comes", page.wait(f"{IDLE} && ({ANSWER}) === 'Once upon a time,'"), page.run(ANSWER))
    foot = page.run(FOOT)
    check("its figures are below it", "6 tokens" in foot and "the limit of tokens is reached" in foot, foot)
    check("the question is above it", page.run("document.querySelector('.message.user .body').textContent") == "Tell me a story.")


def stops(page):
    set_field(page, "max_tokens", "900000")
    page.type("#prompt", "Another one, please.\n\nA long one.")
    page.click("#send")
    first = page.wait(f"({ANSWER}).length > 20 && ({ANSWER})")
    more = page.wait(f"({ANSWER}).length > {len(first or '') + 20} && ({ANSWER})")
    check("text is shown while it is generated", first and more and more.startswith(first[:10]) and not page.run(IDLE), [first, more])
    check("the backend is busy", running() == [1], running())
    keep(page, "streaming")
    page.click("#stop")
    check("Stop stops", page.wait(IDLE) and "stopped" in page.run(FOOT), page.run(FOOT))
    until = time.monotonic() + 30
    while running() != [0] and time.monotonic() < until:
        time.sleep(0.05)
    check("the backend is told", running() == [0], running())
    text = page.run(ANSWER)
    check("the text so far stays", len(text) >= len(more or "") and page.run(ANSWER) == text, text)
    set_field(page, "max_tokens", "5")
    page.run("[...document.querySelectorAll('.message.assistant button')].at(-1).click()")
    check("an answer is tried again", page.wait(f"{IDLE} && ({FOOT}).includes('5 tokens')") and
          page.run("document.querySelectorAll('.message').length") == 4, page.run(FOOT))


def fails(page):
    set_field(page, "max_tokens", "2000000")
    page.type("#prompt", "Too much.")
    page.click("#send")
    check("an error is shown as such", page.wait(
        f"{IDLE} && document.querySelector('.message.assistant .fault')?.textContent.includes('max_tokens')"),
          page.run("document.querySelector('#messages').textContent"))
    set_field(page, "max_tokens", "5")
    set_field(page, "chat_template_kwargs", "[1")
    page.type("#prompt", "And now?")
    page.click("#send")
    check("invalid parameters are not sent", page.run(
        "!document.querySelector('#parameters').hidden && document.querySelectorAll('.message').length === 6 &&"
        "document.querySelector('[name=chat_template_kwargs]').validationMessage === 'This is no JSON object.'"))
    keep(page, "parameters")
    set_field(page, "chat_template_kwargs", "")
    page.click("#parameters-close")
    page.click("#fresh")
    check("a new chat has nothing of the old one", page.run("document.querySelectorAll('.message').length") == 0)


def render(page, text):
    """The text as the page shows it."""
    return page.run("(async () => { const { Markdown } = await import('/page/markdown.js'); const to = document.createElement('div');"
                    f"new Markdown(to).show({json.dumps(text)}); return to.innerHTML; }})()")


MARKDOWN = [
    ("# Title\n\ntext", "<h2>Title</h2><p>text</p>"),
    ("a **b *c* d** `e*f*` ~~g~~", "<p>a <strong>b <em>c</em> d</strong> <code>e*f*</code> <del>g</del></p>"),
    ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
    ("- a\n- b\n  - c\n\n1. d\n2. e", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start=\"1\"><li>d</li><li>e</li></ol>"),
    ("> a\n> b", "<blockquote><p>a<br>b</p></blockquote>"),
    ("|a|b|\n|-|-:|\n|1|2|", "<div class=\"table\"><table><thead><tr><th>a</th><th class=\"number\">b</th></tr></thead><tbody>"
     "<tr><td>1</td><td class=\"number\">2</td></tr></tbody></table></div>"),
    ("[x](https://a.example/) https://b.example/c.", "<p><a href=\"https://a.example/\" target=\"_blank\" rel=\"noopener noreferrer\">"
     "x</a> <a href=\"https://b.example/c\" target=\"_blank\" rel=\"noopener noreferrer\">https://b.example/c</a>.</p>"),
    ("\\*a\\* **b", "<p>*a* **b</p>"),
    ("---", "<hr>"),
    ("<think>hm</think>yes", "<div><details><summary>Thoughts</summary><p>hm</p></details><p>yes</p></div>"),
]

HOSTILE = [
    "<script>parent.hit = 1</script>", "<img src=x onerror='parent.hit = 1'>", "<iframe srcdoc='<script>top.hit=1</script>'>",
    "[a](javascript:parent.hit=1)", "[a](JaVaScRiPt:parent.hit=1)", "[a](\tjavascript:parent.hit=1)", "[a](data:text/html,<script>1</script>)",
    "![a](javascript:1)", "[a](vbscript:1)", "[a](//evil.example)", "`<b>`", "```html\n<script>parent.hit = 1</script>\n```",
    "```\"><script>parent.hit=1</script>\nx\n```", "|<img src=x onerror=hit=1>|b|\n|-|-|\n|<svg onload=hit=1>|d|", "# <svg/onload=hit=1>",
    "- <a href='javascript:1'>x</a>", "> <style>*{display:none}</style>", "<think><script>hit=1</script></think><b>",
    "https://a.example/\"onmouseover=\"hit=1", "[<img src=x>](https://a.example/\"x)", "**<u>**", "&lt;b&gt;&#60;", "\u2028<b>\0",
]

# Each would take hours if the time grew quadratically with the text, or polynomially with its nesting.
LARGE = ["*" * 200000, "*a " * 70000, "**a*" * 50000, "_a" * 100000, "[" * 200000 + "](x)", "[a](" * 50000, "`" * 100000 + "a", "` `` " * 40000,
         "> " * 20000, "- " * 20000, "# " + " " * 100000 + "x", " " * 100000 + "|x\n" + " " * 100000 + "-x", "- - " * 50000 + "x", "|" * 100000 + "\n|-|",
         "<think>" * 20000, "\n".join("- a" for _ in range(20000)), "https://" * 30000, "~~" * 100000 + "a", "\\" * 200001, "![" * 100000]


def is_safe(page, text):
    return page.run(
        "(async () => { const { Markdown } = await import('/page/markdown.js'); const to = document.createElement('div');"
        f"document.body.append(to); new Markdown(to).show({json.dumps(text)});"
        "const bad = [...to.querySelectorAll('*')].filter((e) => ['SCRIPT', 'IMG', 'IFRAME', 'SVG', 'STYLE', 'B', 'U', 'OBJECT'].includes(e.tagName.toUpperCase())"
        " || [...e.attributes].some((a) => !['class', 'start', 'type', 'href', 'target', 'rel', 'open'].includes(a.name))"
        " || (e.tagName === 'A' && !/^(https?|mailto):/.test(e.href)));"
        "to.remove(); return bad.length === 0 && window.hit === undefined ? '' : bad.map((e) => e.outerHTML).join(); })()")


def shows_safely(page):
    for text, wanted in MARKDOWN:
        found = render(page, text)
        check(f"Markdown: {text!r}"[:70].replace("#", ""), found == wanted, f"{found}, expected {wanted}")
    bad = [(text, found) for text in HOSTILE for found in [is_safe(page, text)] if found != ""]
    check("no text of a model becomes a script, an image or an executable address", bad == [], bad)
    code = render(page, "```c\nint a<b>;\n```")
    check("code is unchanged", "<pre><code>int a&lt;b&gt;;</code></pre>" in code and "<span>c</span>" in code, code)
    slow = []
    for text in LARGE:
        took = page.run("(async () => { const { Markdown } = await import('/page/markdown.js'); const to = document.createElement('div');"
                        f"const from = performance.now(); new Markdown(to).show({json.dumps(text)}); return performance.now() - from; }})()")
        if took > 20000:
            slow.append((text[:20], took))
    check("no text takes long to show", slow == [], slow)
    grown = page.run(
        "(async () => { const { Markdown } = await import('/page/markdown.js'); const [a, b] = [0, 1].map(() => document.createElement('div'));"
        "const text = '# T\\n\\n- a\\n  - b **c**\\n\\n```\\nx\\n```\\n|a|\\n|-|\\n\\n<think>x</think>y\\n> q', m = new Markdown(a);"
        "for (let n = 0; n <= text.length; n++) m.show(text.slice(0, n)); new Markdown(b).show(text);"
        "return a.innerHTML === b.innerHTML ? '' : a.innerHTML + ' / ' + b.innerHTML; })()")
    check("a text that arrived in pieces looks like one that arrived at once", grown == "", grown)


CHAT = """**A table**, and what it means:

| rank | step | share |
|-----:|:-----|:------|
| 0 | 3.5 ms | `50 %` |
| 1 | 3.6 ms | *50 %* |

## Then some code

```python
def tell(story):
    return f"Once upon a time, {story}" if len(story) > 0 else "There is no story, and this line is long enough to be scrolled"
```

1. First, a point
   - with a point below
   - and [a link](https://example.org/)
2. Second

> Long ago, in a small village."""


def looks(page):
    """Shows a chat with all elements, for visual inspection."""
    page.run("(async () => { const { Markdown } = await import('/page/markdown.js'); const body = document.querySelector('.message.assistant .body');"
             f"body.textContent = ''; new Markdown(body).show({json.dumps(CHAT)}); document.querySelector('#messages').scrollTop = 0; }})()")
    for name, size in (("wide", (1280, 800)), ("phone", (390, 844))):
        for dark in (False, True):
            page.look(*size, dark=dark, phone=name == "phone")
            wide = page.run("document.documentElement.scrollWidth")
            check(f"nothing is wider than the screen: {name}{', dark' if dark else ''}", wide <= size[0], wide)
            keep(page, f"chat-{name}{'-dark' if dark else ''}")
    page.look(1280, 800)


def lives(page):
    set_field(page, "max_tokens", "900000")
    page.type("#prompt", "Tell me a story.")
    page.click("#send")
    page.wait(f"({ANSWER}).length > 20")
    page.click("#tab-live")
    figure = "[...document.querySelectorAll('#live .figures div')].find((e) => e.firstChild.textContent === '%s')?.children[1].firstChild.textContent"
    speed = page.wait(f"Number({figure % 'Generated'}) > 0 && {figure % 'Generated'}")
    check("tokens a second are shown while a chat goes on", speed, page.run("document.querySelector('#live').textContent"))
    check("so are running requests and the KV cache", page.run(f"{figure % 'Running'} === '1' && Number({figure % 'KV cache'}) >= 0"))
    step = "[...document.querySelectorAll('#live .ranks tbody tr')].map((row) => row.children[2].textContent)"
    steps = page.wait(f"(() => {{ const all = {step}; return all.length === 2 && all.every((text) => Number(text) > 0) && all; }})()")
    check("so is each rank's step", steps, page.run(step))
    page.wait("document.querySelector('.chart path') !== null")
    time.sleep(8 if pictures is not None else 0)
    for name, size in (("wide", (1280, 800)), ("phone", (390, 844))):
        page.look(*size, dark=name == "phone", phone=name == "phone")
        wide = page.run("document.documentElement.scrollWidth")
        check(f"the live view is not wider than the screen: {name}", wide <= size[0], wide)
        keep(page, f"live-{name}")
    page.look(1280, 800)
    page.click("#tab-chat")
    page.click("#stop")
    check("Stop still stops", page.wait(IDLE))


def metrics_of_models(n):
    """A job of n models, the first 20 of which were used, in reverse order; the name of the first is HTML."""
    lines = [f'lockstep_models_known{{backend="b",endpoint="AllModels"}} {n}', 'LoadedModelCount{backend="b",endpoint="AllModels"} 20',
             'lockstep_models_used_bytes{backend="b",endpoint="AllModels"} 3145728',
             'lockstep_models_memory_bytes{backend="b",endpoint="AllModels"} 4194304',
             'lockstep_models_kv_memory_bytes{backend="b",endpoint="AllModels"} 8388608',
             'lockstep_models_kv_free_bytes{backend="b",endpoint="AllModels"} 2097152', 'lockstep_num_requests_running{backend="b"} 1']
    for i in range(20):
        name = '<img src=x onerror=\'window.hit = 1\'>\\"\\\\' if i == 0 else f"m{i}"
        labels = f'backend="b",model="{name}"'
        lines += [f'lockstep_model_state{{{labels},state="ready"}} 1', f'lockstep_model_idle_seconds{{{labels}}} {100 - i}',
                  f'lockstep_model_running{{{labels}}} {int(i == 0)}', f'lockstep_model_bytes{{{labels}}} 1572864',
                  f'lockstep_model_loaded{{{labels}}} {1 + int(i == 0)}', f'lockstep_model_kv_bytes{{{labels}}} {262144 * (i % 2)}',
                  f'lockstep_model_loads_total{{{labels}}} {i + 1}']
    return "\n".join(lines) + "\n"


def lists_models(page):
    page.go(url + "/")
    page.wait("document.querySelector('#model').value === 'lockstep-stories'")
    page.run("(() => { const real = window.fetch; window.fetch = (at, ...more) => String(at).includes('metrics') ? "
             f"Promise.resolve(new Response({json.dumps(metrics_of_models(40))})) : real(at, ...more); }})()")
    page.click("#tab-live")
    rows = "[...document.querySelectorAll('#live .models tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent).join('|'))"
    page.wait(f"({rows}).length > 0")
    found = page.run(rows)
    check("the models in use and used last are shown", len(found) == 16 and found[:2] == [
        "<img src=x onerror='window.hit = 1'>\"\\|ready on 2 sets|1.5|–|now|1", "m19|ready|1.5|0.3|81 s|20"] and found[15].startswith("m5|"), found)
    text = page.run("document.querySelector('#live-cards').textContent")
    check("and the others are counted", "20 of 40 models loaded" in text and "3 of 4 MiB on a rank, keys and values 6 of 8" in text
          and "and 24 more, 4 of them loaded" in text, text)
    check("a model's name is not rendered as HTML", page.run("window.hit === undefined && document.querySelector('#live img') === null"))
    for name, size in (("wide", (1280, 800)), ("phone", (390, 844))):
        page.look(*size, dark=name == "phone", phone=name == "phone")
        wide = page.run("document.documentElement.scrollWidth")
        check(f"the models are not wider than the screen: {name}", wide <= size[0], wide)
        keep(page, f"models-{name}")
    page.look(1280, 800)


def asks_for_key(page):
    page.go(guarded + "/")
    check("the page asks for a key", page.wait("document.querySelector('#key-dialog').open"))
    keep(page, "key")
    page.type("#key", key)
    page.press("Enter", 13)
    page.click("#key-dialog button.main") if page.run("document.querySelector('#key-dialog').open") else None
    check("with the key the models are listed", page.wait("document.querySelector('#model').value === 'lockstep-stories'"),
          page.run("document.querySelector('#notice').textContent"))
    page.type("#prompt", "Tell me a story.")
    set_field(page, "max_tokens", "6")
    set_field(page, "temperature", "0")
    page.click("#send")
    check("and a chat works", page.wait(f"{IDLE} && ({ANSWER}) === 'Once upon a time,'"), page.run(ANSWER))


def main():
    page = Browser(program, folder)
    try:
        page.look(1280, 800)
        chats(page)
        stops(page)
        looks(page)
        fails(page)
        shows_safely(page)
        lives(page)
        lists_models(page)
        refused = [c for c in page.complaints if "400" not in str(c.get("text", ""))]
        check("the browser reports no error except the refused request", refused == [], refused)
        asks_for_key(page)
    finally:
        page.close()
    print(f"1..{n_cases}")
    return n_failed != 0


sys.exit(main())
