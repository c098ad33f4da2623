"""The program that spark-submit starts: `millrace`, as a driver whose JVM and files are there already."""

from millrace.cli.main import main

if __name__ == "__main__":
    main()
