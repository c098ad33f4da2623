"""Kinesis as a client sees it: streams, shards and positions, KCL leases, KPL aggregation."""
