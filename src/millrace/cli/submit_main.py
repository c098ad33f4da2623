"""The program that spark-submit starts: `millrace`, as a driver whose JVM and files are there already."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this file: its neighbours would be taken for libraries of the same names

    from millrace.cli.main import main

    main()
