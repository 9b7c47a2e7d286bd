"""The command line of ./x: its verbs and their options."""

from __future__ import annotations

import argparse
from functools import partial

from tools import benchmark, build, demo, environment, kubernetes, lint, testing
from tools.console import Failure, Usage, error

HELP = """\
./x VERB [options]: sets up, builds, tests and shows tesser. Each verb does what it needs first.

  setup                 install Debian packages and the Python environment .venv; does nothing when that is done
  build [PRESET]        configure and compile; presets: release (default), debug, asan-ubsan, tsan, fuzz
  test [FILTER]         lint, C++ and Python tests, fuzzing, sanitizers; with FILTER the tests whose name contains it
      --fuzz-seconds N      seconds each fuzz target runs (6); 0 leaves fuzzing out
      --sanitize            also run the C++ tests under ThreadSanitizer
      --faults              only random schedules of killed, stopped and paused processes: 100 of the transport on each
                            path, 50 of training runs, 50 with a hub, 200 of a job on the platform, 20 on Slurm
      --plans               only every model and architecture under plans for 2, 3, 4, 6 and 8 workers (an hour), and a
                            dozen models on as many processes
      --random              only random networks, 10,000 of them, each trained eagerly, interpreted and in C++ on one
                            worker and several; --nets N, --seed S: so many, of this seed (0)
      --operators           only every sample of PyTorch's own operator tests as a training step (half an hour), and
                            operators under mixtures of memory layouts
          --update-refusals     writes the list of samples that capture refuses anew
      --kubernetes          only the engine kubernetes and whole jobs on it, on a cluster of two nodes, which is built
                            once (5 to 15 minutes, build/kubernetes) and started on this machine, and whole trainings
                            under every engine; needs root. With --faults: 20 random schedules of faults there instead
      --screenshots DIR     only the page in a browser, with pictures of its views in DIR (docs/pictures)
      --rdma                only the transport over verbs (rc, ud), in a guest with a software RDMA adapter
  demo [NAME]           train an example in C++, cut over two workers, and in PyTorch, side by side; names: mnist
                        (default), shakespeare
  bench NAME            measure; names: step (tesser, PyTorch eager, torch.compile, DDP, FSDP2), network (two
                        workers over 1 Gbit/s against their plan), optimizer (update kernels), transfer (tensors
                        between two processes: tesser, gRPC, Gloo, memcpy), hub (gradients of several workers become
                        weights: tesser, Gloo, wide aggregation), plan (time and bytes of large models' plans), simulate
                        (traces of jobs replayed by the scheduler), platform (starts, recoveries, overhead of jobs)
  lint                  check format, the dependency rule between folders, and Python style
  format                bring C++ and Python files into the project's format
  help                  this text

Examples
  ./x demo                         train a small network on MNIST: installs and builds all it needs
  ./x test                         everything that continuous integration checks
  ./x test Program                 C++ and Python tests with "Program" in their name
  ./x build asan-ubsan             binaries under build/asan-ubsan/bin
  ./x bench step --models mlp,gpt  two of the models
  ./x bench transfer --models      the tensors of the RDMA paper's models, exchanged between two processes

Exit codes: 0 done, 1 something failed, 2 wrong usage.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x", add_help=False, usage="./x VERB [options]; ./x help lists them")
    parser.add_argument("-h", "--help", action="store_true")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    verbs.add_parser("help")
    verbs.add_parser("setup")
    verbs.add_parser("build").add_argument("preset", nargs="?", default="release")
    test = verbs.add_parser("test")
    test.add_argument("filter", nargs="?", default="")
    test.add_argument("--fuzz-seconds", type=int, default=None)
    test.add_argument("--sanitize", action="store_true")
    test.add_argument("--faults", action="store_true")
    test.add_argument("--plans", action="store_true")
    test.add_argument("--operators", action="store_true")
    test.add_argument("--update-refusals", action="store_true")
    test.add_argument("--rdma", action="store_true")
    test.add_argument("--random", action="store_true")
    test.add_argument("--nets", type=int, default=testing.RANDOM_NETWORKS)
    test.add_argument("--seed", type=int, default=0)
    test.add_argument("--kubernetes", action="store_true")
    test.add_argument("--screenshots", metavar="DIR")
    verbs.add_parser("demo").add_argument("name", nargs="?", default="mnist")
    verbs.add_parser("bench").add_argument("name")
    verbs.add_parser("lint")
    verbs.add_parser("format")
    known, rest = parser.parse_known_args(arguments)
    if rest and known.verb not in ("bench", "demo"):
        parser.error(f"unknown argument {rest[0]}")
    known.rest = rest
    return known


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.help or options.verb in (None, "help"):
        print(HELP, end="")
        return 0
    try:
        match options.verb:
            case "setup":
                environment.setup()
            case "build":
                build.build(options.preset)
            case "test":
                if options.screenshots:
                    return testing.page_pictures(options.screenshots)
                if options.update_refusals and not options.operators:
                    raise Usage("--update-refusals goes with --operators")
                campaigns = (options.faults, options.plans, options.operators, options.random)
                if any(campaigns) or options.rdma or options.kubernetes:
                    others = []
                    if options.random:
                        if options.nets < 1:
                            raise Usage("--nets takes a number of networks, 1 or more")
                        networks = partial(testing.network_campaign, options.nets, options.seed)
                        others.append(("random networks", networks))
                    if options.operators:
                        others += testing.operator_campaigns(options.update_refusals)
                    if options.kubernetes and options.faults:
                        others.append(("random faults on kubernetes", kubernetes.kubernetes_faults))
                    elif options.kubernetes:
                        others.append(("kubernetes", kubernetes.kubernetes_tests))
                    has_faults = options.faults and not options.kubernetes
                    return testing.campaigns(has_faults, options.plans, options.rdma, others)
                return testing.test(options.filter, options.fuzz_seconds, options.sanitize)
            case "demo":
                demo.demo(options.name, options.rest)
            case "bench":
                benchmark.benchmark(options.name, options.rest)
            case "lint":
                return lint.lint()
            case "format":
                lint.format_sources()
    except Usage as usage:
        error(str(usage))
        return 2
    except Failure as failure:
        error(str(failure))
        return 1
    except KeyboardInterrupt:
        error("stopped by Ctrl-C")
        return 130
    return 0
