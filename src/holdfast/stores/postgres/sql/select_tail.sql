SELECT holdfast.base() + pg_snapshot_xmin(pg_current_snapshot())::text::bigint
