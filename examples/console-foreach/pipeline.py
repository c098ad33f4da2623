"""Posts given to code of our own: printed as we like it, and written to a journal."""

from handlers import journal, show

import millrace as mr

posting = mr.Pipeline("console-foreach")

posting.source("posts", mr.kafka("posts", schema="id string, author string, text string, at timestamp"))

posting.sink("posts", mr.foreach(show, batch=True))
posting.sink("posts", mr.foreach(journal))
