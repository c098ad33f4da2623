"""Code of your own as a sink, in two of its forms; README.md has the third."""

from pathlib import Path


def show(posts, batch):
    """A function of a batch: called here, in the process of `millrace run`, with a DataFrame."""
    for post in posts.orderBy("at").collect():
        print(f"batch {batch}  @{post.author}: {post.text}")


class Journal:
    """An object that Spark's workers use: opened and closed around the rows of each partition of a batch."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def open(self, partition, batch):
        self.folder.mkdir(parents=True, exist_ok=True)
        # A batch that is run again after a crash has the same number: its file is written anew, and nothing is twice.
        self.file = (self.folder / f"{batch}-{partition}.txt").open("w")
        return True

    def process(self, post):
        self.file.write(f"@{post.author}: {post.text}\n")

    def close(self, error):
        self.file.close()


journal = Journal(Path(__file__).parent / "out")
