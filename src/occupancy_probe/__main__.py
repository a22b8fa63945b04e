"""``python -m occupancy_probe``: the one command line that rules call."""

from occupancy_probe.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
