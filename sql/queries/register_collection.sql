select jeet_internal.register_collection(%(function)s::int, %(name)s::text, %(ttl_ms)s::float8, %(refresh)s::text, %(most)s::int)
