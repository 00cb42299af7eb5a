"""A deployed function as rows, for tests of what reads them: no worker, no sandbox."""

from __future__ import annotations

import psycopg


def deploy(
    db: psycopg.Connection, name: str = "totals", source: str = "events", sink: str = "sums", n: int = 4
) -> None:
    """Streams, function, version, stage, tasks, checkpoints and one collection, as a deploy leaves them."""
    db.execute("select jeet_internal.create_stream(%s, %s, 'userId')", (source, n))
    db.execute("select jeet_internal.create_stream(%s, %s)", (sink, n))
    db.execute(
        """
        with f as (insert into jeet_internal.function (name, version) values (%(name)s, 1) returning id),
             v as (insert into jeet_internal.function_version
                          (function_id, version, filename, source, bytecode, plugin_hash, graph, spec, digest)
                   select id, 1, 'f.js', '', '', '', '[]',
                          jsonb_build_object('source', %(source)s::text, 'sink', %(sink)s::text), ''
                     from f returning function_id),
             g as (insert into jeet_internal.stage (function_id, version, stage, inputs, outputs)
                   select function_id, 1, 0, array[i.id], array[o.id]
                     from v, jeet_internal.stream i, jeet_internal.stream o
                    where i.name = %(source)s and o.name = %(sink)s returning function_id, inputs),
             c as (insert into jeet_internal.collection (function_id, id, name) select id, 0, 'totals' from f),
             t as (insert into jeet_internal.task (function_id, partition, version)
                   select id, p, 1 from f, generate_series(0, %(n)s - 1) p returning id, function_id)
        insert into jeet_internal.checkpoint (task_id, stream_id)
        select t.id, g.inputs[1] from t join g using (function_id)
        """,
        {"name": name, "source": source, "sink": sink, "n": n},
    )


def put_state(
    db: psycopg.Connection, key: str, value: str, function: str = "totals", expires_in: str | None = None
) -> None:
    """One entry in the state of the function's task of partition 0."""
    db.execute(
        """
        insert into jeet_internal.state (task_id, collection_id, key, value, expires_at)
        select t.id, 0, %(key)s, %(value)s::json, clock_timestamp() + %(expires_in)s::interval
          from jeet_internal.task t join jeet_internal.function f on f.id = t.function_id
         where f.name = %(function)s and t.partition = 0
        """,
        {"key": key, "value": value, "function": function, "expires_in": expires_in},
    )
