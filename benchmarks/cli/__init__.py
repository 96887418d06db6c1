"""The command ``captionbench``: one module per subcommand."""
