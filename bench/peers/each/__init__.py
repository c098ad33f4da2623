"""One file a peer: what it needs and how its program is started; the programs are beside, in programs/."""
