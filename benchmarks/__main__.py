"""The command ``captionbench``, also ``python -m benchmarks``."""

import sys


def _redeliver(unraisable) -> None:
    """Send Ctrl-C again if it arrived in a finaliser, where Python ignores exceptions."""
    import _thread
    import threading

    if unraisable.exc_type is KeyboardInterrupt:
        # within this hook the interrupt would be lost: on a busy machine it may last 10 ms
        threading.Timer(0.1, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


def main() -> int:
    """Run the command line; Ctrl-C at any moment prints one line and exits with 130."""
    try:
        sys.unraisablehook = _redeliver
        from benchmarks.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("captionbench: interrupted", file=sys.stderr)
        return 130
    finally:
        import signal

        # the result is printed: ignore interrupts while the interpreter shuts down
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # after Ctrl-C in another `exec`, as of a dataclass, Python would exit by the signal
        exec("")


if __name__ == "__main__":
    sys.exit(main())
