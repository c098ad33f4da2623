"""The program that spark-submit starts: `millrace`, in a driver that already has a JVM and its files."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this file: its neighbours would shadow libraries of the same names

    from millrace.cli.main import main

    main()
