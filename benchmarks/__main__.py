"""The command ``captionbench``, also ``python -m benchmarks``."""

import sys


def _redeliver(unraisable) -> None:
    """Send Ctrl-C again where a finaliser met it: Python ignores what is raised there."""
    import _thread
    import threading

    if unraisable.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


def main() -> int:
    """Run the command line so that Ctrl-C is one line and exit code 130 at any moment of it."""
    try:
        sys.unraisablehook = _redeliver
        from benchmarks.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("captionbench: interrupted", file=sys.stderr)
        return 130
    finally:
        import signal

        # the result is printed: an interrupt while the interpreter shuts down changes nothing
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
