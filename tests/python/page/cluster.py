"""A server with teams, nodes and jobs in every state, for the page to show: all real, on pretend nodes."""

from __future__ import annotations

import time
from pathlib import Path

from tests.python.platform.server_process import Server, manifest, zip_of

NODES = (
    *(f"gpu-{i}=8,64GiB,v100:4" for i in range(1, 6)),
    *(f"cpu-{i}=16,32GiB" for i in range(1, 4)),
)
PEOPLE = {  # by user: team and role
    "ann": ("vision", "member"),
    "ben": ("speech", "member"),
    "cho": ("language", "administrator"),
    "eve": ("vision", "viewer"),
}
QUOTAS = {
    "vision": {"millicpus": 24_000, "accelerators": {"v100": 8}},
    "speech": {"millicpus": 16_000, "memory_bytes": 96 << 30, "accelerators": {"v100": 6}},
    "language": {"millicpus": 32_000, "accelerators": {"v100": 2}},  # what it runs beyond that is borrowed
}
METRICS = [
    {
        "type": "regex",
        "pattern": r"step (?P<step>\d+)/(?P<steps>\d+) loss (?P<loss>\S+)"
        r"( accuracy (?P<accuracy>\S+) learning_rate (?P<learning_rate>\S+))?",
    },
    {"type": "json"},
]
# Writes as trainings do. Up to a step it is quick, so that there is something to see at once.
TRAIN = r"""
import json, math, os, random, sys, time

rank, attempt = int(os.environ["LEARNER_ID"]), int(os.environ["TESSER_RESTART"])
steps, quick, scale, dies = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
state = os.path.join(os.environ["JOB_STATE_DIR"], "step")
first = int(open(state).read()) if os.path.exists(state) else 0
random.seed(97 * rank + attempt)
print(f"\x1b[1mtraining\x1b[0m learner {rank} on \x1b[36mv100\x1b[0m, batch 64, from step {first}", flush=True)
for step in range(first + 1, steps + 1):
    fall = math.exp(-5 * step / steps)
    loss = scale * (fall + 0.09) + random.gauss(0, 0.05 * scale) * (0.25 + fall)
    print(f"step {step}/{steps} loss {loss:.4f} accuracy {0.95 - 0.85 * fall + random.gauss(0, 0.01):.4f} "
          f"learning_rate {0.1 * min(1, step / (0.05 * steps)) * (1 - step / steps):.5f}")
    if rank == 0 and step % (steps // 20) == 0:
        for percent in range(0, 101, 10):
            sys.stdout.write(f"\revaluating {percent:3d}% |{'#' * (percent // 5):20}|")
        print("\n" + json.dumps({"step": step, "evaluation/loss": round(loss + 0.06 * scale, 4)}))
        print(f"evaluation at step {step}: \x1b[32mbetter than before\x1b[0m, saved")
    if step == dies and attempt == 1 and rank == 0:
        open(state, "w").write(str(step - steps // 20))
        print("\x1b[31mRuntimeError\x1b[0m: the link to learner 1 went down", flush=True)
        os._exit(7)
    if step >= quick:
        sys.stdout.flush()
        if step == quick and rank == 0:
            print("\x1b[33mwarning\x1b[0m: the norm of gradients, 12.4, is above 10")
        time.sleep(1)
"""
# What somebody who means harm could write: none of it may be more than text.
HARM = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
HARMFUL = f"""
import json
print({HARM!r})
print("\\x1b]0;owned\\x07\\x1b[2J\\x1b[31m<b>red</b>\\x1b[0m \\u202ereversed")
print(json.dumps({{"step": 1, "<b>loss</b>": 2.5}}))
print("step 2/3 loss nan\\nstep 3/3 loss 1.5")
print(json.dumps({{"step": 3, "<b>loss</b>": 1.5}}))
print("x" * 30_000)
raise SystemExit({HARM!r})
"""


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.server = Server(directory / "data", *(word for node in NODES for word in ("--node", node))).start()
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.tokens = {"admin": self.server.token}
        for team in sorted({team for team, _ in PEOPLE.values()}):
            self.admin("POST", "/v1/teams", {"name": team})
        for user, (team, role) in PEOPLE.items():
            self.admin("POST", "/v1/users", {"name": user})
            self.admin("PUT", f"/v1/teams/{team}/members/{user}", {"role": role})
            self.tokens[user] = self.admin("POST", "/v1/tokens", {"user": user})["token"]
        for team, quota in QUOTAS.items():
            self.admin("PUT", f"/v1/teams/{team}/quota", quota)
        self.admin("PATCH", "/v1/nodes/gpu-5", {"drain": True})
        self.jobs: dict[str, str] = {}

    def admin(self, method: str, path: str, body: dict | None = None) -> dict:
        answer = self.server.ask(method, path, body)
        assert answer.status in (200, 201, 202), answer.body
        return answer.json

    def submit(self, user: str, name: str, command: str, code: dict[str, str] | None = None, **more: object) -> str:
        text = manifest(name, command, metrics=METRICS, grace=1, **more)
        answer = self.server.submit(text, zip_of(code) if code else None, token=self.tokens[user])
        assert answer.status == 201, answer.body
        self.jobs[name] = answer.json["id"]
        return self.jobs[name]

    def train(
        self, user: str, name: str, steps: int, quick: int, scale: float = 2.3, dies: int = 0, **more: object
    ) -> str:
        command = f"python3 train.py {steps} {quick} {scale} {dies}"
        return self.submit(user, name, command, {"train.py": TRAIN}, **more)

    def fill(self) -> None:
        """Jobs in every state; returns when they are."""
        self.submit("ben", "tokens", "echo 32,000 tokens; echo made > $RESULT_DIR/tokens.txt")
        self.submit("ann", "harmful", "python3 harm.py", {"harm.py": HARMFUL}, description=HARM, restarts=0)
        self.train("ann", "resnet50", 4000, 2600, dies=1500, learners=2, cpus=4, memory="24GiB",
                   accelerators={"v100": 4}, description="ImageNet, warm-up of 200 steps")  # fmt: skip
        self.train("ben", "wav2vec", 900, 200, 5.1, cpus=4, memory="48GiB", accelerators={"v100": 4},
                   description="Base model, LibriSpeech 960 h")  # fmt: skip
        self.train("cho", "char-lm", 12000, 9400, 3.3, learners=2, cpus=2, memory="12GiB",
                   accelerators={"v100": 2}, description="Shakespeare, by characters")  # fmt: skip
        self.train("cho", "prepare", 50, 10, cpus=12, memory="8GiB")
        self.train("ann", "sweep-3", 300, 100, cpus=2)
        for name in ("resnet50", "wav2vec", "char-lm", "sweep-3"):
            self.server.wait_for(self.jobs[name], "PROCESSING")
        self.train("cho", "llm-7b", 1000, 0, learners=4, cpus=8, memory="56GiB", accelerators={"v100": 4},
                   priority=70, description="All of the cluster's accelerators, for a week")  # fmt: skip
        self.train("ben", "wav2vec-large", 1000, 0, learners=2, cpus=8, accelerators={"v100": 4}, priority=60)
        self.train("ann", "segment", 1000, 0, cpus=4, accelerators={"v100": 4})
        self.wait_for_step("sweep-3", 100)
        self.admin("PATCH", f"/v1/jobs/{self.jobs['sweep-3']}", {"wanted": "halt"})
        for name, state in (("harmful", "FAILED"), ("tokens", "COMPLETED"), ("sweep-3", "HALTED")):
            self.server.wait_for(self.jobs[name], state)
        self.wait_for_step("resnet50", 2600)
        for learner in range(2):  # whose log is looked at
            self.wait_for_lines("char-lm", learner, 9400)

    def wait_for_step(self, name: str, step: int) -> None:
        until = time.monotonic() + 30
        while ((self.job(name)["progress"] or {}).get("step") or 0) < step:
            assert time.monotonic() < until, self.job(name)
            time.sleep(0.05)

    def wait_for_lines(self, name: str, learner: int, count: int) -> None:
        until = time.monotonic() + 60
        address = f"/v1/jobs/{self.jobs[name]}/logs?learner={learner}&tail=1"
        while sum(line["sequence"] for line in self.server.get(address)["lines"][-1:]) < count:
            assert time.monotonic() < until, self.job(name)
            time.sleep(0.05)

    def job(self, name: str) -> dict:
        return self.server.get(f"/v1/jobs/{self.jobs[name]}")

    def close(self) -> None:
        self.server.close()
