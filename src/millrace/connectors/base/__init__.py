"""What every connector has: the interfaces of sources and sinks, options, and the tasks of a batch."""
