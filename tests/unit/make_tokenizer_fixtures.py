#!/usr/bin/env python3
"""Fixtures of tests/unit/test_tokenizer*.c, made with the reference library (pip: tokenizers 0.23).

    make_tokenizer_fixtures.py            small trained vocabularies, digests and hard cases -> fixtures/tokenizer/
    make_tokenizer_fixtures.py --tables   text/tokenizer/unicode_tables.h

Random strings come from a seeded generator here and, with the same tables (fixtures/tokenizer/alphabet.h), in
tests/unit/test_tokenizer.c. They contain every code point of Unicode with positive probability, unassigned ones and
NUL included: none is left out because of differing Unicode versions.

Per pipeline NAME: NAME.json (the tokenizer), NAME.digests (one line per block of 100 strings: FNV-1a 64 of the encoded
ids, of their decoded text, of the text that random ids decode to, and of the same streamed), NAME.cases.json (hard cases
in full)."""
import json
import os
import re
import struct
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "fixtures", "tokenizer")
BLOCK, BLOCKS = 100, 200
MASK = (1 << 64) - 1

# ---------------------------------------------------------------- random strings

WORDS = ["the", "The", "THE", "hello", "Hello", "world", "World", "tokenizer", "internationalization", "it's", "It'S",
         "don't", "we'll", "I'D", "they've", "you'RE", "'s", "'", "''", "\u017f", "'\u017f", "a", "A", "I", "iOS",
         "camelCase", "HTTPServer", "x1", "3.14", "12345678", "007", "1,000,000", "\u0664\u0662", "\u00b2", "\u00bd",
         "\u2167", " ", "  ", "   ", "      ", "\n", "\n\n", "\r\n", "\t", " \n ", "\n  \n", "\u00a0", "\u180e",
         "\u2003", "\u3000", "\u200d", "\u200b", "\x00", "\x01", "\x7f", "\u0085", "!", "?!", "...", "--", "(", ")",
         "[x]", "{}", "//", "#!", "$", "%", "&&", "*", "+", "=", "<", ">", "@", "^", "_", "`", "|", "~", "\\", "\"",
         ".", ",", "\u2026", "\u3002", "\uff0c", "\u3001", "\u0964", "\u06d4", "\u060c", "\u4f60\u597d",
         "\u4e16\u754c", "\u3072\u3089\u304c\u306a", "\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4",
         "\u1112\u1161\u11ab", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u0939\u093f\u0928\u094d\u0926\u0940",
         "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1", "caf\u00e9", "cafe\u0301",
         "\u00c5ngstr\u00f6m", "na\u00efve", "A\u030a", "\u212b", "q\u0323\u0307", "q\u0307\u0323", "\u1e9e",
         "\u00df", "\u0130", "\u0131", "\ufb01", "\u01c5", "\u02bc", "\u0345", "\U0001f600",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001d400",
         "\U00020000", "\ufffd", "\ufeff", "\u2581", "\u2581\u2581", "\u0120", "\u010a", "<0x0A>", "<0xE4>",
         "<unk>", "<s>", "</s>", "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<A>",
         "<B>", "<AB>", "<lstrip>", "<rstrip>", "<both>", "<word>", "word", "\u00e9", "<mask>", " <mask>",
         "<start_of_turn>", "\uff5c", "a b", "\u2126hm"]
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x30, 0x39), (9, 13),
          (0x20, 0x20), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF),
          (0x5D0, 0x5EA), (0x600, 0x6FF), (0x8A0, 0x8FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF),
          (0x1AB0, 0x1AFF), (0x1C80, 0x1CFF), (0x1DC0, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
          (0x2150, 0x218F), (0x2460, 0x24FF), (0x2E00, 0x2FFF), (0x3000, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF),
          (0x4E00, 0x9FFF), (0xA640, 0xA7FF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFFFF),
          (0x10000, 0x1FFFF), (0x11900, 0x11FFF), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x323AF),
          (0, 0x10FFFF)]


class Random:
    """splitmix64"""

    def __init__(self, seed, index):
        self.state = (seed * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03) & MASK

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) % n


def random_string(seed, index):
    r, out = Random(seed, index), []
    for _ in range(1 + r.below(10)):
        kind = r.below(8)
        if kind < 4:
            out.append(WORDS[r.below(len(WORDS))])
        elif kind == 4:
            out.append(WORDS[r.below(len(WORDS))] * (1 + r.below(5)))
        elif kind == 5:
            out.append(" " + WORDS[r.below(len(WORDS))])
        else:
            low, high = RANGES[r.below(len(RANGES))]
            for _ in range(1 + r.below(6)):
                c = low + r.below(high - low + 1)
                out.append(chr(0xFFFD if 0xD800 <= c < 0xE000 else c))
    return "".join(out)


def random_ids(seed, index, n_ids):
    """Half of the ids are below 300, where the byte tokens are; some are outside the vocabulary."""
    r = Random(seed, index)
    return [r.below(min(300, n_ids)) if r.below(2) else r.below(n_ids + 8) for _ in range(1 + r.below(14))]


def fnv(data, h=0xCBF29CE484222325):
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & MASK
    return h


def alphabet_header():
    def c_string(s):
        return '"' + "".join("\\%03o" % b for b in s.encode()) + '"'
    out = ["/* Generated by make_tokenizer_fixtures.py: the tables of its random strings. */",
           "/* clang-format off */", "static const struct { const char *text; unsigned bytes; } words[] = {"]
    out += ["    {%s, %d}," % (c_string(w), len(w.encode())) for w in WORDS]
    out += ["};", "static const struct { int low, high; } ranges[] = {"]
    out += ["    {0x%x, 0x%x}," % r for r in RANGES]
    return "\n".join(out + ["};", "/* clang-format on */", ""])


# ---------------------------------------------------------------- pipelines

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
            r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
DEEPSEEK_OLD = [r"[\r\n]", r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u0370-\u0373\u0400-\u0481]+",
                r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
                r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
        r"[\p{Hiragana}[\p{Katakana}\u30fc]]++|\p{N}{1,3}+|[\h_]{2}?|^\s*+$|\w{,2}|[^\S\n]|.")


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def seq(key, *members):
    return {"type": "Sequence", key: list(members)}


def pre(*members):
    return seq("pretokenizers", *members)


def replace(a, b):
    return {"type": "Replace", "pattern": {"String": a}, "content": b}


def metaspace(scheme, cut=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def added(content, special=True, normalized=False, single_word=False, lstrip=False, rstrip=False):
    return {"content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": special}


def template(before, after=()):
    names = list(before) + list(after)
    def item(n):
        return {"SpecialToken": {"id": n, "type_id": 0}}
    return {"type": "TemplateProcessing",
            "single": [item(n) for n in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [item(n) for n in after],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [None], "tokens": [n]} for n in names}}


NFC = {"type": "NFC"}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
SPM = seq("decoders", replace("\u2581", " "), FALLBACK, FUSE, STRIP)
LLAMA_NORM = seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581"))
EOT = added("<|endoftext|>")
CHAT = [EOT, added("<|im_start|>"), added("<|im_end|>")]
SP = [added("<unk>"), added("<s>"), added("</s>")]
FLAGS = [added("<%s%d>" % ("fw" if i & 1 else "f", i), special=bool(i & 16), normalized=bool(i & 8),
               single_word=bool(i & 1), lstrip=bool(i & 2), rstrip=bool(i & 4)) for i in range(32)]
FLAG_WORDS = [added("<lstrip>", lstrip=True), added("<rstrip>", False, True, rstrip=True),
              added("<both>", lstrip=True, rstrip=True), added("word", False, True, single_word=True),
              added("<word>", True, False, True), added("<A>", False), added("<AB>"), added("<B>", False, True),
              added("\u00e9", False), added("a b", False), added("\uff5c"), added("\u212b", False, True),
              added("<mask>", True, False, False, True, False), added("  ", False, False, False, False, True)]


def pipelines():
    """name -> (tokens in front, settings, what to train on)"""
    bl, sp = dict(alphabet="bytes"), dict(alphabet="spm", unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    p = {}
    p["gpt2"] = dict(bl, added=[EOT], pre=byte_level(), post=byte_level(), dec=BYTES, merges="strings")
    p["gpt2_prefix"] = dict(bl, added=SP + [added("<mask>", lstrip=True)], pre=byte_level(True), dec=BYTES,
                            post={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1],
                                  "trim_offsets": True, "add_prefix_space": True}, merges="strings")
    p["llama3"] = dict(bl, added=[added("<|begin_of_text|>"), EOT], pre=pre(split(LLAMA3), byte_level(False, False)),
                       post=seq("processors", byte_level(), template(["<|begin_of_text|>"])), dec=BYTES,
                       ignore_merges=True)
    p["qwen2"] = dict(bl, added=CHAT, norm=NFC, pre=pre(split(QWEN), byte_level(False, False)), post=byte_level(),
                      dec=BYTES)
    p["neox"] = dict(bl, added=[EOT] + [added(" " * n, False, True) for n in (5, 4, 3, 2)], norm=NFC,
                     pre=byte_level(), dec=BYTES, merges="strings")
    p["o200k"] = dict(bl, added=CHAT, pre=pre(split(O200K), byte_level(False, False)), dec=BYTES)
    p["tekken"] = dict(bl, added=SP, pre=pre(split(TEKKEN), byte_level(False, False)), dec=BYTES, ignore_merges=True,
                       post=template(["<s>"], ["</s>"]))
    p["bloom"] = dict(bl, added=SP + [added("<pad>")], pre=pre(split(BLOOM), byte_level(False, False)), dec=BYTES)
    p["falcon"] = dict(bl, added=[EOT], dec=BYTES,
                       pre=pre({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                               {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")))
    p["starcoder"] = dict(bl, added=[EOT], pre=pre({"type": "Digits", "individual_digits": True}, byte_level(True)),
                          dec=BYTES)
    p["deepseek"] = dict(bl, added=[added("\uff5c"), EOT], dec=BYTES,
                         pre=pre(*[split(x) for x in DEEPSEEK], byte_level(False, False)))
    p["deepseek_old"] = dict(bl, added=[EOT], dec=BYTES, norm=seq("normalizers"),
                             pre=pre(*[split(x) for x in DEEPSEEK_OLD], {"type": "Digits", "individual_digits": True},
                                     byte_level(False, False)))
    p["kimi"] = dict(bl, added=CHAT, pre=pre(split(KIMI), byte_level(False, False)), dec=BYTES)
    p["flags"] = dict(bl, added=FLAGS[:16] + FLAG_WORDS + FLAGS[16:], norm=NFC, pre=byte_level(), dec=BYTES)
    p["split_removed"] = dict(bl, added=[EOT], pre=pre(split(r"\s+", "Removed"), byte_level(False, False)), dec=BYTES)
    p["split_previous"] = dict(bl, added=[EOT], pre=pre(split(r"\p{P}", "MergedWithPrevious"),
                                                        split(r"\p{Lu}", "MergedWithNext"), byte_level(False, False)),
                               dec=BYTES)
    p["split_inverted"] = dict(bl, added=[EOT], dec=BYTES,
                               pre=pre(split(r"\p{L}+|\p{N}", "Contiguous", True),
                                       {"type": "Punctuation", "behavior": "MergedWithNext"},
                                       split(r"[a-y]*", "Removed", True), byte_level(False, False)))
    p["llama2"] = dict(sp, added=SP + [added("<pad>", False, True)], norm=LLAMA_NORM, post=template(["<s>"]), dec=SPM,
                       merges="strings")
    p["llama2_flags"] = dict(sp, added=SP + FLAGS + FLAG_WORDS, norm=LLAMA_NORM, post=template(["<s>"]), dec=SPM)
    p["gemma"] = dict(sp, added=SP + [added("<start_of_turn>"), added("\n\n", False), added("\u2581\u2581", False)],
                      norm=replace(" ", "\u2581"), pre=split(" ", "MergedWithPrevious", kind="String"),
                      dec=seq("decoders", replace("\u2581", " "), FALLBACK, FUSE), post=template(["<s>"]))
    p["metaspace_first"] = dict(sp, added=SP, pre=metaspace("first", False), dec=SPM, post=template(["<s>"]))
    p["metaspace_always"] = dict(alphabet="spm", hex=False, unk_token="<unk>", added=SP, pre=metaspace("always"),
                                 dec=metaspace("always"))
    p["metaspace_never"] = dict(alphabet="spm", hex=False, unk_token="<unk>", fuse_unk=True, added=SP,
                                pre=metaspace("never"), dec=metaspace("never"))
    p["no_decoder"] = dict(alphabet="spm", hex=False, added=SP, pre=None,
                           post={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]})
    p["some_bytes"] = dict(sp, added=SP, holes=True, norm=seq("normalizers", replace(" ", "\u2581"), NFC), pre=None,
                           dec=seq("decoders", FALLBACK, FUSE, replace("\u2581", " "),
                                   dict(STRIP, start=2),
                                   {"type": "Replace", "pattern": {"Regex": "l+"}, "content": "L"}))
    p["some_bytes_split"] = dict(sp, added=SP, holes=True, fuse_unk=False, norm=None,
                                 pre=pre(metaspace("first"), {"type": "Digits", "individual_digits": True}),
                                 dec=seq("decoders", {"type": "Strip", "content": "e", "start": 1, "stop": 0}, FALLBACK,
                                         metaspace("first"), FUSE, replace("th", "")))
    return p


def trained(settings):
    """Returns tokens and merges of a small BPE, trained on random strings of another seed."""
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    corpus = [random_string(7, i) for i in range(2500)]
    if settings["alphabet"] == "bytes":
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        initial, size = sorted(pre_tokenizers.ByteLevel.alphabet()), 256 + 240
    else:
        tok.normalizer = normalizers.Replace(" ", "\u2581")
        if settings.get("pre") is not None:
            tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=settings["pre"].get("split", True))
        initial, size = ["\u2581"], 420
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=initial, limit_alphabet=256, show_progress=False,
                                  max_token_length=24)
    tok.train_from_iterator(corpus, trainer)
    model = json.loads(tok.to_str())["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda x: x[1])]
    return tokens, model["merges"]


def make_json(settings):
    tokens, merges = trained(settings)
    names = [a["content"] for a in settings["added"]]
    vocab = {}
    if settings["alphabet"] == "spm":
        for name in names[:3]:
            vocab[name] = len(vocab)
        if settings.get("hex", True):
            for b in range(256):
                if not (settings.get("holes") and b % 5 == 0):
                    vocab["<0x%02X>" % b] = len(vocab)
    for t in tokens:
        vocab.setdefault(t, len(vocab))
    added_tokens, next_id = [], len(vocab)
    for a in settings["added"]:
        if a["content"] in vocab:
            number = vocab[a["content"]]
        else:
            number, next_id = next_id, next_id + 1
        added_tokens.append(dict(id=number, **a))
    if settings.get("merges") == "strings":
        merges = [" ".join(m) for m in merges]
    ids = {a["content"]: a["id"] for a in added_tokens}
    post = json.loads(json.dumps(settings.get("post")))
    for t in [post] + (post or {}).get("processors", []):
        for name, entry in (t or {}).get("special_tokens", {}).items():
            entry["ids"] = [ids[name]]
    for key in ("cls", "sep"):
        if post and key in post:
            post[key][1] = ids[post[key][0]]
    model = {"type": "BPE", "dropout": None, "unk_token": settings.get("unk_token"),
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": settings.get("fuse_unk", False),
             "byte_fallback": settings.get("byte_fallback", False), "ignore_merges": settings.get("ignore_merges", False),
             "vocab": vocab, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens,
            "normalizer": settings.get("norm"), "pre_tokenizer": settings.get("pre"), "post_processor": post,
            "decoder": settings.get("dec"), "model": model}


# ---------------------------------------------------------------- expectations

class Oracle:
    def __init__(self, text):
        self.tok, self.plain = Tokenizer.from_str(text), Tokenizer.from_str(text)
        self.plain.encode_special_tokens = True
        self.file = json.loads(text)
        self.vocab = {i: t for t, i in self.tok.get_vocab().items()}
        self.n_ids = max(self.vocab) + 1

    def encode(self, text, special, plain):
        return (self.plain if plain else self.tok).encode(text, add_special_tokens=special).ids

    def decode(self, ids, skip):
        return self.tok.decode(ids, skip_special_tokens=skip).encode()

    def stream(self, ids, skip):
        """The text as Lockstep streams it: whole, unless a run of <0xNN> breaks off after valid characters, which
        have been passed on by then: they stay, and only the bytes after them become U+FFFD each. The library cannot do
        that, so the chain is implemented here for decoders of the form [Replace ..., ByteFallback, Fuse, ...]."""
        whole = self.decode(ids, skip)
        decoder = self.file["decoder"] or {}
        members = [d["type"] for d in decoder.get("decoders", [])]
        if "ByteFallback" not in members or "Metaspace" in members:
            return whole
        byte_value = {i: int(t[3:5], 16) for i, t in self.vocab.items() if len(t) == 6 and t[:3] == "<0x"}
        special = {a["content"] for a in self.file["added_tokens"] if a["special"]}
        kept = [i for i in ids if i in self.vocab and not (skip and self.decoded_form(i) in special)]
        out, run = [], []

        def flush():
            data = bytes(run)
            good = max([n for n in range(len(data) + 1) if valid(data[:n])], default=0)
            out.append(data[:good].decode())
            out.append("\ufffd" * (len(data) - good))
            run.clear()

        def valid(data):
            try:
                data.decode()
                return True
            except UnicodeDecodeError:
                return False
        texts = []
        for i in kept + [None]:
            if i in byte_value:
                run.append(byte_value[i])
                continue
            if run:
                out = []
                flush()
                texts.append("".join(out))
            if i is not None:
                texts.append(self.token_text(i))
        text = "".join(texts)
        return self.finish(text).encode()

    def decoded_form(self, i):
        """Since 0.23 a normalized added token decodes to its normalized content, which is looked up as special."""
        a = [a for a in self.file["added_tokens"] if a["id"] == i]
        if a and a[0]["normalized"] and self.tok.normalizer is not None:
            return self.tok.normalizer.normalize_str(self.vocab[i])
        return self.vocab[i]

    def token_text(self, i):
        """A token after the steps before ByteFallback."""
        t = self.decoded_form(i)
        for d in self.file["decoder"]["decoders"]:
            if d["type"] == "ByteFallback":
                return t
            assert d["type"] == "Replace"
            t = t.replace(d["pattern"]["String"], d["content"])

    def finish(self, t):
        """The steps after Fuse."""
        names = [d["type"] for d in self.file["decoder"]["decoders"]]
        for d in self.file["decoder"]["decoders"][names.index("Fuse") + 1:]:
            if d["type"] == "Strip":
                for _ in range(d["start"]):
                    t = t[1:] if t.startswith(d["content"]) else t
                for _ in range(d["stop"]):
                    t = t[:-1] if t.endswith(d["content"]) else t
            elif "String" in d["pattern"]:
                t = t.replace(d["pattern"]["String"], d["content"])
            else:
                t = re.sub(d["pattern"]["Regex"], d["content"], t)
        return t


HARD = ["", " ", "  ", "   a", "a ", "a  b", "\n", "\n\n", " \n", "a\n b", "\t\t", "\r\n\r\n x", "'s", "'S", "don'T",
        "'\u017f", "x'll y'LL", "12345678", "1234 5678", "3.14", "\u0664\u0662\u06f0", "\u00b2\u00b3\u00bd", "\u2167",
        "\x00", "a\x00b", "\u180e\u180ex", "\u00a0a\u00a0", "\u3000\u3000x", "\u2028\u2029", "\u200b", "\u0085a",
        "caf\u00e9 cafe\u0301", "q\u0323\u0307q\u0307\u0323", "\u212b\u2126\u1e9b\u0323", "\u1112\u1161\u11ab\uac00",
        "\u0958", "a\u0898\u0301\u0334", "a\u0301\u0897\u0334", "\U00011935\U00011930", "\U000105c9\u0307",
        "\ua7cb\ua7da", "\U0001e4d0\U00010d4a", "\u4f60\u597d\u3002\u4e16\u754c", "\U00031350\U0002ebf0",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea\u2764\ufe0f", "<s>", " <s> ", "<s><s>",
        "hello <s>world", "a</s>", "<|endoftext|>", "x<|endoftext|> y", "<|im_start|>user\nhi<|im_end|>\n", "<mask>",
        "x  <mask>  y", "x <both>\n y", "<both><both>", "word words sword word", "xword wordx \u00e9word word\u0301",
        "\u24b6word", "word\u200d", "<A>B><AB>", "<pad>x <pad>", "  <rstrip>   <lstrip>  ", "<rstrip>    x",
        "\u2581", "\u2581a", "a\u2581b", " \u2581 ", "\u2581\u2581\u2581x", "<0x41>", "<0xE4><0xBD>", "<unk>",
        "\ufffd", "\ufeffx", "\u0120a", "HTTPServerURL", "camelCaseX", "A\u0300B", "aA\u01c5b", "a_b__c", "!?...--",
        "(x)[y]{z}", "http://x.y/z?q=1&r=2", "a" * 70, " " * 70, "\u4e2d" * 40, "ab" * 60, "\u0301" * 40,
        "The quick brown fox. It's 42!", "i\u0307\u0130\u0131", "\ufb01\ufb06\u00df", "\U0010ffff\ue000"]


def expectations(name, text):
    o = Oracle(text)
    lines = []
    for block in range(BLOCKS):
        h = [0xCBF29CE484222325] * 4
        for i in range(block * BLOCK, (block + 1) * BLOCK):
            ids = o.encode(random_string(1, i), i % 2 == 1, i % 5 == 0)
            h[0] = fnv(struct.pack("<%di" % (len(ids) + 1), *ids, -1), h[0])
            h[1] = fnv(o.decode(ids, i % 3 == 0) + b"\xff", h[1])
            ids = random_ids(2, i, o.n_ids)
            whole, stream = o.decode(ids, i % 3 == 0), o.stream(ids, i % 3 == 0)
            h[2] = fnv(whole + b"\xff", h[2])
            h[3] = fnv(stream + b"\xff", h[3])
        lines.append(" ".join("%016x" % x for x in h))
    with open(os.path.join(OUT, name + ".digests"), "w") as f:
        f.write("\n".join(lines) + "\n")
    cases = []
    for i, s in enumerate(HARD):
        ids = o.encode(s, False, False)
        case = {"text": s, "ids": ids, "decoded": o.decode(ids, False).decode()}
        if o.encode(s, True, False) != ids and i % 8 == 0:
            case["special"] = o.encode(s, True, False)
        if o.encode(s, False, True) != ids:
            case["plain"] = o.encode(s, False, True)
        cases.append(case)
    with open(os.path.join(OUT, name + ".cases.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


# ---------------------------------------------------------------- Unicode tables

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def regex_set(pattern, text):
    found = set()
    for piece, _ in pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True).pre_tokenize_str(text):
        found.update(map(ord, piece))
    return found


def single_set(pre_tokenizer):
    """Returns code points that a character pre-tokenizer splits off "x<char>x<char>x"."""
    text = "".join("x" + chr(c) for c in CODE_POINTS if c != ord("x"))
    return {ord(p) for p, _ in pre_tokenizer.pre_tokenize_str(text) if len(p) == 1 and p != "x"}


def ranges(code_points, category=lambda c: ""):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1 and out[-1][2] == category(c):
            out[-1][1] = c
        else:
            out.append([c, c, category(c)])
    return out


def inert_marks():
    """Returns combining marks unknown to the library's (older) NFC tables: they keep their place and block reordering."""
    nfc = normalizers.NFC().normalize_str
    inert = {0x11930}  # second half of U+11938, a composition of Unicode 13
    for c in CODE_POINTS:
        # Assigned marks with a combining class move behind an overlay mark (class 1); those of class 1 before others.
        s = chr(c)
        ccc = unicodedata.combining(s)
        if ccc > 1 and nfc("a" + s + "\u0334") != nfc("a\u0334" + s):
            inert.add(c)
        if ccc == 1 and nfc("a\u0301" + s) != nfc("a" + s + "\u0301"):
            inert.add(c)
    # Unicode 15, which utf8proc 2.8 supports and Python 3.11 does not.
    inert.update({0x10EFD, 0x10EFE, 0x10EFF, 0x11F41, 0x11F42, 0x1E08F, *range(0x1E4EC, 0x1E4F0)})
    return inert


def tables_header():
    text = "".join(map(chr, CODE_POINTS))
    category = {c: k for k in CATEGORIES for c in regex_set(r"\p{%s}" % k, text)}
    changed = {c for c in CODE_POINTS if category.get(c, "Cn") != unicodedata.category(chr(c))}
    probe = Tokenizer(models.BPE({"a": 0}, []))
    probe.add_tokens([AddedToken("QZQ", single_word=True, normalized=False)])
    word = {c for c in CODE_POINTS if 1 not in probe.encode("QZQ" + chr(c)).ids}
    plain = {c for c, k in category.items() if k[0] in "LM" or k in ("Nd", "Pc")}
    assert plain <= word
    number = {c for c, k in category.items() if k[0] == "N"}
    numeric = single_set(pre_tokenizers.Digits(individual_digits=True))
    assert number <= numeric
    tables = [
        ("category_change", "general category differs from Unicode 14", ranges(changed, lambda c: category.get(c, "Cn"))),
        ("word_extra", "\\w besides L, M, Nd, Pc", ranges(word - plain)),
        ("numeric_extra", "numeric besides the N of the table above", ranges(numeric - number)),
        ("punctuation", "pre-tokenizer Punctuation", ranges(single_set(pre_tokenizers.Punctuation("isolated")))),
        ("nfc_inert", "marks unknown to the library's NFC", ranges(inert_marks())),
    ] + [("script_" + s.lower(), "\\p{%s}" % s, ranges(regex_set(r"\p{%s}" % s, text)))
         for s in ("Han", "Hangul", "Hiragana", "Katakana")]
    out = ["/* text/tokenizer/unicode_tables.h - generated by tests/unit/make_tokenizer_fixtures.py --tables from",
           " * the reference library (tokenizers 0.23); do not edit. Included by unicode.c only. */",
           "#ifndef TOKENIZER_UNICODE_TABLES_H", "#define TOKENIZER_UNICODE_TABLES_H", "",
           '#include "text/tokenizer/unicode.h"', "", "/* clang-format off */"]
    for name, what, rows in tables:
        out.append("/* %s */" % what)
        out.append("static const struct unicode_range %s[] = {" % name)
        line = "   "
        for a, b, k in rows:
            item = ' {0x%x, 0x%x, "%s"},' % (a, b, k)
            if len(line) + len(item) > 118:
                out.append(line)
                line = "   "
            line += item
        out += [line, "};"]
    return "\n".join(out + ["/* clang-format on */", "", "#endif", ""])


def main():
    if sys.argv[1:] == ["--tables"]:
        with open(os.path.join(HERE, "..", "..", "coordinator", "tokenizer", "unicode_tables.h"), "w") as f:
            f.write(tables_header())
        return
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "alphabet.h"), "w") as f:
        f.write(alphabet_header())
    only = sys.argv[1:]
    for name, settings in pipelines().items():
        if only and name not in only:
            continue
        text = json.dumps(make_json(settings), ensure_ascii=False, separators=(",", ":"))
        Tokenizer.from_str(text)
        with open(os.path.join(OUT, name + ".json"), "w") as f:
            f.write(text + "\n")
        expectations(name, text)
        print(name, len(text), flush=True)
    if not only or "gpt2_files" in only:
        gpt2_files()


def gpt2_files():
    """vocab.json + merges.txt, as in older repositories; the oracle is transformers' tokenizer of them."""
    folder = os.path.join(OUT, "gpt2_files")
    os.makedirs(folder, exist_ok=True)
    file = make_json(pipelines()["gpt2"])
    vocab = dict(file["model"]["vocab"], **{"</s>": len(file["model"]["vocab"])})
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump(vocab, f, separators=(",", ":"))
    with open(os.path.join(folder, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "\n".join(file["model"]["merges"]) + "\n")
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        f.write('{"add_bos_token": true, "bos_token": {"content": "</s>"}, "add_prefix_space": true, '
                '"tokenizer_class": "GPT2Tokenizer", "clean_up_tokenization_spaces": false, '
                '"model_max_length": 1000000000000000019884624838656}\n')
    tok = Tokenizer(models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")))
    whole = json.loads(tok.to_str())
    whole.update(pre_tokenizer=byte_level(True), decoder=BYTES, post_processor=template(["</s>"]))
    whole["post_processor"]["special_tokens"]["</s>"]["ids"] = [vocab["</s>"]]
    expectations("gpt2_files", json.dumps(whole))


if __name__ == "__main__":
    main()
