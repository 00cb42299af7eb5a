insert into jeet_internal.function_version (function_id, version, filename, source, bytecode, plugin_hash, graph, spec, digest)
values (%(function)s, %(version)s, %(filename)s, %(source)s, %(bytecode)s, %(plugin_hash)s, %(graph)s, %(spec)s, %(digest)s)
