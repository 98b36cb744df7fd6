"""Our proxy before another server, through the public face only."""

from common import parse

from trimaran import Server


def main() -> None:
    options = parse(__doc__ or "")
    Server.proxy(options.upstream).run("http", host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
