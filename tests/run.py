"""tests/run.py - runs the tests of the named suites side by side, and counts. tests/run.sh sets their environment and starts it.

Every test is a program that prints TAP ("ok 3 - name"). One that crashes or times out counts as an additional failure; one that
cannot run here ("ok 1 - name # SKIP reason") counts as skipped. The complete output of each is in BUILD/test-logs.

A test declares its load, the number of cores that it keeps busy; tests run at once while their loads fit on this machine's
cores. While cores are idle nevertheless, one more starts, but never beside ranks that take all cores. The longest
start first: by the durations of the previous run (BUILD/test-logs/durations.json), or else as declared here.
No test runs alone, so its limits must hold on a busy machine too.
"""
import collections
import glob
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time

# Tests that mostly wait: for a timeout, for a client that does not come, for a rank's nap, for MPI to start and end.
WAITING = {"door/test_gateway_service", "e2e/test_batch_damage", "e2e/test_batch_models", "e2e/test_batch_refused",
           "e2e/test_bench_refusals", "e2e/test_odd_files", "e2e/test_serve_end", "e2e/test_serve_network",
           "e2e/test_serve_ranks", "e2e/test_serve_start", "e2e/test_terminal", "fail/test_failures",
           "fail/test_step_timeout", "unit/test_lifeline_connect"}
# Tests that take longer than others of their suite, in seconds on two cores, for a first run without durations.
LONG = {"cluster/test_slurm": 240, "cluster/test_slurm_hosts": 90, "e2e/test_batch_end": 160,
        "e2e/test_batch_models": 90, "e2e/test_batch_refused": 55, "e2e/test_bench_models": 50,
        "e2e/test_bench_refusals": 70, "e2e/test_serve_end": 40, "e2e/test_serve_models": 90,
        "e2e/test_serve_network": 60, "e2e/test_serve_start": 25, "e2e/test_terminal": 75, "fail/test_failures": 50,
        "fail/test_step_timeout": 50, "unit/test_scheduler": 15, "unit/test_tokenizer": 15}
# Tests that measure only speed, which is meaningless under sanitizers.
SPEED = {"unit/test_batch_speed", "unit/test_protocol_speed", "unit/test_scheduler_speed"}
# `make test`: one end-to-end program for each command.
QUICK_E2E = {"e2e/test_batch", "e2e/test_bench", "e2e/test_client", "e2e/test_gateway", "e2e/test_preflight",
             "e2e/test_prompts", "e2e/test_serve", "e2e/test_tokens"}
# One of the programs that go through many models.
QUICK_PART = {"spmd/test_drafts": ["llama-14"]}

TICK = 0.02 # seconds between polls of running tests
SPARE_SECONDS = 1.0 # seconds over which idle cores are measured
SPARE = 0.5         # idle cores that suffice for one more test
MOST_BEYOND = 2.0   # declared load allowed beyond the cores

# Exists while programs that some tests need are still being built (make check).
BUILDING = os.environ.pop("TESTS_BUILDING", "")
# Threads of these tests have nothing to gain from spinning: the cores have other work.
PASSIVE = {"OMP_WAIT_POLICY": "passive"}

# seconds: expected duration; lock: tests with the same one never run at once; figures: pattern of the lines to show at
# the end; late: waits for BUILDING.
Test = collections.namedtuple("Test", "name command limit load seconds env lock figures late",
                              defaults=(1.0, 10, {}, None, None, False))


def mpirun(ranks, *command):
    return ["mpirun", "-n", str(ranks), *command]


class Plan:
    """The tests of a list of suites; every suite is a method of the same name."""

    def __init__(self, build, cores):
        self.build, self.cores, self.tests = build, cores, []

    def add(self, name, command, limit, **more):
        if name in LONG:
            more["seconds"] = LONG[name]
        if name in WAITING:
            more["load"] = 0.25
        more["late"] = name.startswith(("sanitized ", "fuzz/"))
        self.tests.append(Test(name, command, limit, **more))

    def add_ranks(self, name, ranks, command, limit, arguments=(), **more):
        """A program under mpirun: every rank keeps a core busy."""
        self.add(f"{name} on {ranks} ranks", mpirun(ranks, command, *arguments), limit, load=min(ranks, self.cores), **more)

    def programs(self, kind, build=None):
        """(name, path) of every program that is built from tests/KIND."""
        for source in sorted(glob.glob(f"tests/{kind}/test_*.c")):
            stem = source[len("tests/"):-len(".c")]
            yield stem, os.path.join(build or self.build, "tests", stem)

    def each(self, kind, limit, prefix="", build=None, without=(), **more):
        for name, path in self.programs(kind, build):
            if name not in without:
                self.add(prefix + name, [path], limit, **more)

    def unit(self):
        self.each("unit", 300, seconds=2)
        self.each("ops", 300, env=PASSIVE)

    def narrow(self):
        """Products and attention as computed by CPUs without AVX-512 (256), and without AVX2 (128). The same code with
        narrower vectors: every third case of those that the plain build runs."""
        for bits in (256, 128):
            for name in ("codes", "matmul", "attention"):
                stem = f"ops/test_{name}_{bits}"
                self.add(stem, [f"{self.build}/tests/{stem}"], 600, seconds=8, env={**PASSIVE, "LOCKSTEP_CASE_STRIDE": "3"})

    def spmd(self, ranks=(1, 2, 3, 4), part=None):
        for name, path in self.programs("spmd"):
            for n in ranks:
                self.add_ranks(name, n, path, 600, (part or {}).get(name, ()))

    def parity(self, ranks=(1, 2, 3, 4, 5, 8)):
        for n in ranks:
            self.add_ranks("parity", n, f"{self.build}/tests/parity/test_parity", 600, seconds=20 * n)
        if max(ranks) > 2:  # more cuts into blocks and groups
            self.add_ranks("parity of quantised weights", 7, f"{self.build}/tests/parity/test_parity", 600, ("q-",))

    def fail(self):
        self.each("fail", 600, seconds=30, load=0.5)

    def e2e(self):
        self.each("e2e", 600, seconds=30, load=0.5)

    def attack(self):
        self.each("attack", 1000, seconds=30, load=0.5)

    def quick(self):
        self.unit()
        self.spmd((1, 2), QUICK_PART)
        self.parity((1, 2))
        for name, path in self.programs("e2e"):
            if name in QUICK_E2E:
                self.add(name, [path], 600, load=0.5)

    def door(self):
        """Everything that a new user does before the first run: packages, installing, man pages, documents."""
        for script in sorted(glob.glob("tests/door/test_*.sh")):
            self.add(f"door/{os.path.basename(script)[:-len('.sh')]}", [script], 1000, seconds=30, load=0.5)
        for proxy in ("nginx", "haproxy"):
            self.add(f"door/test_gateway_smuggling {proxy}", ["tests/door/test_gateway_smuggling.sh", proxy], 300, load=0.25)

    def cluster(self):
        """Two hosts, and a real Slurm: they share the machine's network, so they run one at a time."""
        for script in sorted(glob.glob("tests/cluster/test_*.sh")):
            name = os.path.basename(script)[:-len(".sh")]
            self.add(f"cluster/{name}", [script], 480, lock="cluster", seconds=60, load=0.25, figures="# .*status ")

    def soak(self):
        """The GPUs' long checks, short and on the CPU, and a batch that is ended and resumed a few times."""
        soak = f"{self.build}/tests/soak"
        for n in (1, 2):
            self.add_ranks("soak", n, f"{soak}/test_soak", 240, env={"SOAK_SECONDS": "2"})
        self.add("the same tokens on 2 ranks", [f"{self.build}/tests/gpu/test_same_tokens", "cpu", "2"], 600, seconds=30)
        for n in (1, 3):
            self.add_ranks("soak/test_loading", n, f"{soak}/test_loading", 120)
        for name, limit, env in (("test_serve_load", 480, {"SOAK_SECONDS": "2"}),
                                 ("test_serve_hostile", 360, {"SERVE_MESSAGES": "3000"}),
                                 ("test_gateway_load", 300, {}),
                                 ("test_gateway_crowd", 300, {}),
                                 ("test_models_crowd", 300, {"SOAK_SECONDS": "4", "MODELS_ROUNDS": "80"}),
                                 ("test_batch_kill", 480, {"BATCH_KILLS": "6", "BATCH_PROMPTS": "200"})):
            self.add(f"soak/{name}", [f"{soak}/{name}"], limit, env=env, seconds=40)

    @staticmethod
    def new_seed():
        """A new seed each time; the printed one repeats the run."""
        seed = os.environ.get("SOAK_SEED", str(random.randrange(1, 2**31)))
        print(f"SOAK_SEED={seed}", flush=True)
        return seed

    def soak_batch(self):
        """make soak-batch: a hundred kills, with the figures."""
        self.add("soak/test_batch_kill", [f"{self.build}/tests/soak/test_batch_kill"], 3700, figures="# ",
                 env={"BATCH_KILLS": os.environ.get("BATCH_KILLS", "100"),
                      "BATCH_PROMPTS": os.environ.get("BATCH_PROMPTS", "2000"), "BATCH_SEED": self.new_seed()})

    def long(self):
        """make soak: tests that take minutes, with their figures; one at a time, from a new seed every time."""
        soak, load = f"{self.build}/tests/soak", self.cores
        seed = self.new_seed()
        seconds = {"SOAK_SECONDS": os.environ.get("SOAK_SECONDS", "120")}
        messages = {"SERVE_MESSAGES": os.environ.get("SERVE_MESSAGES", "100000"), "HOSTILE_SEED": seed}
        sessions = {"SESSION_SECONDS": seconds["SOAK_SECONDS"], "SESSION_SEED": seed}
        for n in (1, 2):
            self.add(f"soak on {n} ranks", mpirun(n, f"{soak}/test_soak"), 400, env=seconds, load=load, figures="# ")
        self.add("soak/test_serve_load", [f"{soak}/test_serve_load"], 900, env=seconds, load=load, figures="# ")
        self.add("soak/test_serve_hostile", [f"{soak}/test_serve_hostile"], 1800, env=messages, load=load, figures="# ")
        self.add("attack/test_sessions", [f"{self.build}/tests/attack/test_sessions"], 1200, env=sessions, load=load,
                 figures="# ")
        self.add("soak/test_gateway_load", [f"{soak}/test_gateway_load"], 600, load=load, figures="# ")
        self.add("soak/test_gateway_crowd", [f"{soak}/test_gateway_crowd"], 600, load=load, figures="# ")
        for n in (1, 2, 3):
            self.add(f"soak/test_models_crowd on {n} ranks", [f"{soak}/test_models_crowd"], 900,
                     env={**seconds, "MODELS_RANKS": str(n)}, load=load, figures="# ")
        forms = {"FORMS": os.environ.get("FORMS", "2000"), "FORMS_SEED": seed}
        self.add("door/test_forms", ["tests/door/test_forms.sh"], 1800, env=forms, load=load, figures="# ")
        self.fuzz()

    def sanitizers(self):
        # Open MPI itself leaks at exit; everything else is fatal.
        env = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1",
               "LOCKSTEP_SANITIZED": "1"}
        san = self.build + "-san"
        self.each("unit", 900, "sanitized ", san, SPEED, env=env)
        # The plain build runs all cases.
        self.each("ops", 900, "sanitized ", san, env={**env, **PASSIVE, "LOCKSTEP_CASE_STRIDE": "5"})
        for name, path in self.programs("spmd", san):
            self.add_ranks("sanitized " + name, 2, path, 600, env=env)
        # The gateway does not use MPI: its own leaks count, too. Its clients are the plain programs.
        strict = {**env, "ASAN_OPTIONS": "detect_leaks=1", "LOCKSTEP_BINARY": f"{san}/lockstep"}
        for name in ("attack/test_gateway_http", "e2e/test_gateway", "e2e/test_gateway_backends", "e2e/test_gateway_keys"):
            self.add(f"sanitized {name}", [f"{self.build}/tests/{name}"], 900, env=strict, load=0.5)
        # Hostile clients of the server; the quarantine is small, so that freed memory is returned visibly.
        attacked = {**env, "LOCKSTEP_BINARY": f"{san}/lockstep",
                    "ASAN_OPTIONS": env["ASAN_OPTIONS"] + ":quarantine_size_mb=8"}
        for name in ("attack/test_sessions", "attack/test_identities"):
            self.add(f"sanitized {name}", [f"{self.build}/tests/{name}"], 900, env=attacked, seconds=60, load=0.5)
        self.add_ranks("sanitized parity", 2, f"{san}/tests/parity/test_parity", 900, env=env, seconds=120)

    def fuzz(self):
        """Searches from a random seed, for this many seconds per fuzzer."""
        seconds = int(os.environ.get("FUZZ_SECONDS", 60))
        self.fuzzers("seconds", seconds, 2 * seconds + 120)

    def fuzzers(self, unit, count, limit):
        for source in sorted(glob.glob("tests/fuzz/fuzz_*.c")):
            name = os.path.basename(source)[:-len(".c")]
            self.add(f"fuzz/{name}", ["tests/fuzz/run.sh", self.build, name, unit, str(count)], limit, seconds=10)

    def all(self):
        for suite in ("unit", "narrow", "spmd", "parity", "fail", "e2e", "attack", "door", "cluster", "soak", "sanitizers"):
            getattr(self, suite)()
        self.fuzzers("inputs", 15000, 600) # from a fixed seed; `make soak` searches further


SUITES = ("all", "quick", "unit", "narrow", "spmd", "parity", "fail", "e2e", "attack", "door", "cluster", "soak", "sanitizers", "fuzz",
          "long",
          "soak-batch")


class Run:
    """A test that runs, in a session of its own."""

    def __init__(self, test, process, started):
        self.test, self.process, self.started = test, process, started
        self.used, self.ended = 0, False # used: seconds of its limit

    def end(self, number):
        self.ended = True
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class Idle:
    """Returns the number of idle cores of the machine."""

    def __init__(self):
        self.spare, self.last = 0.0, self.look()

    @staticmethod
    def look():
        try:
            with open("/proc/stat") as f:
                idle = int(f.readline().split()[4]) / os.sysconf("SC_CLK_TCK")
        except OSError:
            idle = 0.0
        return time.monotonic(), idle

    def watch(self):
        now, idle = self.look()
        if now - self.last[0] >= SPARE_SECONDS:
            self.spare = (idle - self.last[1]) / (now - self.last[0])
            self.last = now, idle

    def use(self):
        """A test has started: the idle cores must be measured again."""
        self.spare, self.last = 0.0, self.look()


class Runner:
    def __init__(self, build, cores):
        self.idle = Idle()
        self.cores, self.running, self.durations, self.results = cores, {}, {}, []
        self.count = collections.Counter()
        self.logs = os.path.join(build, "test-logs")
        self.memory = os.path.join(self.logs, "durations.json")
        os.makedirs(self.logs, exist_ok=True)
        if os.path.exists(self.memory):
            with open(self.memory) as f:
                self.durations = json.load(f)

    def log_of(self, test):
        return os.path.join(self.logs, re.sub(r"[/ ]", "-", test.name) + ".log")

    def expected(self, test):
        return self.durations.get(test.name, test.seconds)

    def fits(self, test):
        beside = [run.test for run in self.running.values()]
        if test.late and os.path.exists(BUILDING):
            return False
        if any(t.lock is not None and t.lock == test.lock for t in beside):
            return False
        beyond = sum(t.load for t in beside) + test.load - self.cores
        whole = max([test.load, *(t.load for t in beside)]) >= self.cores
        return not beside or beyond <= 0 or (not whole and beyond <= MOST_BEYOND and self.idle.spare >= SPARE)

    def start(self, test):
        with open(self.log_of(test), "wb") as log:
            p = subprocess.Popen(test.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                 env={**os.environ, **test.env}, start_new_session=True)
        self.idle.use()
        self.running[p.pid] = Run(test, p, time.monotonic())

    def wait(self):
        """Waits until cores are idle, or a test ends, by itself or by its limit: time counts less while more processes than
        the tests' own want the cores."""
        if not self.running: # the remaining tests' programs are still being built
            time.sleep(TICK)
            return
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid in self.running:
                run = self.running.pop(pid)
                run.process.returncode = os.waitstatus_to_exitcode(status)
                self.judge(run, time.monotonic() - run.started, usage)
                return
            self.watch()
            if self.idle.spare >= SPARE:
                return

    def watch(self):
        slowness = max(1, os.getloadavg()[0] / (2 * self.cores))
        for run in self.running.values():
            run.used += TICK / slowness
            if run.used > run.test.limit and not run.ended:
                run.end(signal.SIGTERM)
            elif run.used > run.test.limit + 5:
                run.end(signal.SIGKILL)
        self.idle.watch()
        time.sleep(TICK)

    def judge(self, run, seconds, usage):
        test, status = run.test, run.process.returncode
        with open(self.log_of(test), errors="replace") as f:
            lines = f.read().splitlines()
        # cmocka writes "not ok 2 # SKIP name" up to 1.1.5, "ok 2 # SKIP name" since.
        cases = [line for line in lines if re.match(r"(not )?ok ", line)]
        skip = re.match(r"ok 1 - .*# SKIP (.*)", cases[0]) if len(cases) == 1 else None # nothing else was tried
        if skip and status == 0:
            self.count["skipped"] += 1
            print(f"SKIPPED {test.name}: {skip[1]}", flush=True)
            return
        left_out = [m[1] for m in (re.match(r"(?:not )?ok \d+ (?:- )?(.*# SKIP .*)", line) for line in cases) if m]
        cases = [line for line in cases if "# SKIP " not in line]
        for case in left_out:
            print(f"SKIPPED {test.name}: {case}", flush=True)
        self.count["skipped"] += len(left_out)
        good = sum(line.startswith("ok ") for line in cases)
        bad = len(cases) - good
        verdict = None
        if run.ended:
            verdict = f"not ok - {test.name} was ended after {seconds:.0f} s"
        elif status != 0 and bad == 0:
            verdict = f"not ok - {test.name} ended with status {status}"
        elif status == 0 and good == 0 and not left_out:
            verdict = f"not ok - {test.name} ran no test"
        if verdict is not None:
            bad += 1
            lines.append(verdict)
            with open(self.log_of(test), "a") as f:
                f.write(verdict + "\n")
        self.count["passed"] += good
        self.count["failed"] += bad
        cpu = usage.ru_utime + usage.ru_stime
        self.durations[test.name] = round(seconds, 1)
        self.results.append((seconds, cpu, test))
        if bad == 0:
            print(f"ok   {test.name} ({good} tests, {seconds:.0f} s, {cpu:.0f} s of processor time)", flush=True)
        else:
            print(f"FAIL {test.name} ({good} passed, {bad} failed, status {status}, {seconds:.0f} s): {self.log_of(test)}")
            self.show_failures(lines)

    @staticmethod
    def show_failures(lines):
        shown = {k for i, line in enumerate(lines)
                 if line.startswith("not ok ") and "# SKIP " not in line for k in range(max(0, i - 6), i + 1)}
        for k in sorted(shown | set(range(max(0, len(lines) - 5), len(lines))))[-45:]:
            print(f"  {k + 1}: {lines[k]}")
        sys.stdout.flush()

    def run(self, tests):
        waiting = sorted(tests, key=self.expected, reverse=True)
        while waiting or self.running:
            for test in list(waiting):
                if self.fits(test):
                    waiting.remove(test)
                    self.start(test)
            self.wait()

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for run in self.running.values():
                run.end(number)
            until = time.monotonic() + 5
            while self.running and time.monotonic() < until:
                pid, _, _ = os.wait4(-1, os.WNOHANG)
                self.running.pop(pid, None)
                time.sleep(TICK)

    def report(self, wall):
        for _, _, test in self.results:
            if test.figures is not None:
                with open(self.log_of(test), errors="replace") as f:
                    print("".join(line for line in f if re.match(test.figures, line)), end="")
        for title, key in (("The slowest", 0), ("Most processor time", 1)):
            print(f"\n{title}:")
            for result in sorted(self.results, key=lambda r: -r[key])[:10]:
                print(f"{result[0]:6.0f} s, {result[1]:6.0f} s of processor time: {result[2].name}")
        print()
        print(f"{wall:6.0f} s, {sum(cpu for _, cpu, _ in self.results):6.0f} s of processor time: all, on {self.cores} cores\n")
        with open(self.memory + ".new", "w") as f:
            json.dump(self.durations, f, indent=1)
        os.replace(self.memory + ".new", self.memory)
        if self.count["skipped"] != 0:
            print(f"{self.count['skipped']} SKIPPED")
        print(f"{self.count['passed']} passed, {self.count['failed']} failed")
        return self.count["failed"] == 0 and self.count["passed"] > 0


def end(number, _):
    raise KeyboardInterrupt(number)


def main():
    build, suites = sys.argv[1], sys.argv[2:] or ["all"]
    unknown = [s for s in suites if s not in SUITES]
    if unknown:
        sys.exit(f"tests/run.sh: no suite {shlex.quote(unknown[0])}; there are: {' '.join(SUITES)}")
    cores = len(os.sched_getaffinity(0))
    plan, runner, started = Plan(build, cores), Runner(build, cores), time.monotonic()
    for suite in suites:
        getattr(plan, suite.replace("-", "_"))()
    signal.signal(signal.SIGTERM, end)
    try:
        runner.run(list({test.name: test for test in plan.tests}.values()))
    except KeyboardInterrupt:
        runner.stop()
        return 130
    return 0 if runner.report(time.monotonic() - started) else 1


if __name__ == "__main__":
    sys.exit(main())
