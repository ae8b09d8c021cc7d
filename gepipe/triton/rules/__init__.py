"""What the server wants of a repository beyond its protobuf; each module looks at one thing."""
