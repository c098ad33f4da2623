"""What queries do: progress, totals, phases, events; the terminal, the dashboard and Prometheus read it from here."""
