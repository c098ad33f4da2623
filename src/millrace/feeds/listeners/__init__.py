"""What feeds that others connect to share: HTTP and Flume servers, and their back pressure."""
