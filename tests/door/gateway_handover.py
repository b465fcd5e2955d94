"""tests/door/gateway_handover.py - clients that stream continuously through lockstep-gateway, while jobs hand over to each
other: the next one writes its rendezvous file, the previous one drains. No stream is lost.

usage: gateway_handover.py PROGRAM FOLDER CLIENTS HANDOVERS      prints TAP
"""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

program, folder, n_clients, n_handovers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
socket_path = f"{folder}/http.sock"
lock, ending, bad, n_good = threading.Lock(), threading.Event(), [], 0
body = json.dumps({"prompt": "Once", "max_tokens": 20, "ignore_eos": True, "stream": True})
request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"


def start_job(number):
    path = f"{folder}/jobs/{number}.json"
    job = subprocess.Popen(["mpirun", "-n", "1", program, "serve", "--model", "demo/lockstep-stories", "--endpoint",
                            f"ipc://{folder}/{number}.sock", "--rendezvous", path], stderr=subprocess.DEVNULL)
    until = time.time() + 60
    while not os.path.exists(path) and time.time() < until:
        time.sleep(0.05)
    return job


def stream():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(socket_path)
        s.sendall(request.encode())
        text = b""
        while piece := s.recv(65536):
            text += piece
    return text


def client():
    global n_good
    while not ending.is_set():
        text = stream()
        whole = b" 200 OK" in text[:20] and b"data: [DONE]" in text and text.count(b'"finish_reason":"length"') == 1
        with lock:
            n_good += whole
            if not whole:
                bad.append(text[-300:])


def await_more(n):
    """Waits until this many more streams have ended: then those open before have ended."""
    wanted, until = n_good + n, time.time() + 120
    while n_good < wanted and time.time() < until and not bad:
        time.sleep(0.05)


def main():
    os.mkdir(f"{folder}/jobs")
    gateway = subprocess.Popen([f"{program}-gateway", "--backend", f"{folder}/jobs", "--listen", f"unix:{socket_path}"],
                               stderr=subprocess.PIPE, text=True)
    job, status, found = start_job(0), [], threading.Semaphore(0)
    threading.Thread(target=lambda: [found.release() for line in gateway.stderr if "is ready" in line], daemon=True).start()
    found.acquire(timeout=120)
    threads = [threading.Thread(target=client) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for number in range(1, n_handovers + 1):
        await_more(n_clients)
        after = start_job(number)
        found.acquire(timeout=120)
        job.send_signal(signal.SIGUSR1)
        status.append(job.wait(120))
        job = after
    await_more(n_clients)
    ending.set()
    for thread in threads:
        thread.join()
    gateway.terminate()
    job.send_signal(signal.SIGUSR1)
    status += [gateway.wait(60), job.wait(60)]
    good = not bad and n_good >= n_clients * (n_handovers + 1) and not any(status)
    if not good:
        print(f"# {n_good} whole, {len(bad)} not: {bad[:2]}; status {status}")
    print(f"{'ok' if good else 'not ok'} 1 - {n_clients} streams at once, {n_handovers} handovers, none lost\n1..1")
    sys.exit(not good)


main()
