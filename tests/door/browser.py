"""tests/door/browser.py - a headless Chromium, driven over a pipe by its DevTools protocol; needs only the standard library."""
import base64
import json
import os
import select
import subprocess
import time

SECONDS = 60 # for steps that should take one


class Browser:
    """One page of one browser. Its errors (exceptions, refusals by the Content-Security-Policy) are in `complaints`."""

    def __init__(self, program, profile):
        commands, self.write_end = os.pipe()
        self.read_end, answers = os.pipe()
        shell = f'exec "$0" "$@" 3<&{commands} 4>&{answers}' # the descriptors that Chromium uses
        self.process = subprocess.Popen(
            ["bash", "-c", shell, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.n_asked, self.rest, self.session, self.complaints = 0, b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def take(self, until):
        """Returns the next message."""
        while b"\0" not in self.rest:
            if not select.select([self.read_end], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.read_end, 1 << 20)
            if piece == b"":
                raise EOFError("the browser has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(message["params"]["exceptionDetails"])
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"])
        return message

    def ask(self, method, **params):
        self.n_asked += 1
        message = {"id": self.n_asked, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            answer = self.take(until)
            if answer.get("id") == self.n_asked:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def run(self, script):
        """Returns the value of an expression in the page; awaits a promise."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, script, seconds=SECONDS):
        """Returns the first value of it that is true; None: none was."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        return None

    def go(self, url):
        self.ask("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def look(self, width, height, dark=False, phone=False):
        """Emulates a screen of this size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def click(self, selector):
        """Clicks its centre with a real mouse event."""
        x, y = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                        "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector, text):
        self.click(selector)
        self.ask("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def close(self):
        os.close(self.write_end) # closing its end of the pipe ends it
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
