"""What simulated feeds share: times, sampling, phrases, malformed records."""
