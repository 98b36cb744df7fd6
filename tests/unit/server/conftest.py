"""Many small servers with threads."""

from tests.support.idle_threads import idle_threads_go_at_once as idle_threads_go_at_once
