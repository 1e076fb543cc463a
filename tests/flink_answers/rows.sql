-- numbers
(VALUES
      (1, CAST(7 AS INT), CAST(2 AS BIGINT), CAST(3 AS SMALLINT), CAST(12.34 AS DECIMAL(10, 2)), CAST(0.05 AS DECIMAL(4, 3)),
       CAST(2.5 AS DOUBLE), CAST(1.5 AS FLOAT), TRUE),
      (2, CAST(-7 AS INT), CAST(2 AS BIGINT), CAST(-3 AS SMALLINT), CAST(-12.35 AS DECIMAL(10, 2)), CAST(1.005 AS DECIMAL(4, 3)),
       CAST(-2.5 AS DOUBLE), CAST(-0.1 AS FLOAT), FALSE),
      (3, CAST(NULL AS INT), CAST(5 AS BIGINT), CAST(1 AS SMALLINT), CAST(NULL AS DECIMAL(10, 2)), CAST(2 AS DECIMAL(4, 3)),
       CAST(NULL AS DOUBLE), CAST(3 AS FLOAT), CAST(NULL AS BOOLEAN)),
      (4, CAST(10 AS INT), CAST(3 AS BIGINT), CAST(4 AS SMALLINT), CAST(100 AS DECIMAL(10, 2)), CAST(0.333 AS DECIMAL(4, 3)),
       CAST(0.1 AS DOUBLE), CAST(1.0E10 AS FLOAT), TRUE)
    ) AS t(id, i, l, h, d, e, x, f, b)
-- texts
(VALUES
      (1, 'Hello World', 'l', 2, 'a,b,,c'), (2, '', 'x', 0, ''), (3, CAST(NULL AS STRING), 'x', 1, ','),
      (4, 'foo-bar_baz', 'o', -2, 'a'), (5, 'a\d 100%', '\d', 3, ' k=v,q=w '), (6, '  pad ', ' ', 20, '12'), (7, 'äöü€', 'ö', 3, '1.5'),
      (8, 'abc123def', 'c', 5, 'x1y22z')
    ) AS t(id, s, c, n, v)
-- times
(VALUES
      (1, TIMESTAMP '2024-02-29 13:45:30.123', TIMESTAMP '2024-03-11 09:15:00', DATE '2024-02-29',
       CAST(1709214330123 AS BIGINT), 1709214330, '2024-02-29 13:45:30', '2024-02-29'),
      (2, TIMESTAMP '2023-12-31 23:59:59.999', TIMESTAMP '2024-12-30 00:00:00', DATE '2023-12-31',
       CAST(0 AS BIGINT), 0, 'no time', 'no date'),
      (3, TIMESTAMP '1970-07-20 20:17:40.5', TIMESTAMP '2024-03-10 12:00:00', DATE '1970-07-20',
       CAST(17353060000 AS BIGINT), 17353060, '1970-07-20 20:17:40.25', '1970-7-2'),
      (4, TIMESTAMP '2024-03-09 12:00:00', TIMESTAMP '2024-03-10 12:00:00', DATE '2024-03-10',
       CAST(1710014400000 AS BIGINT), 1710014400, '2024-03-09', '20240309')
    ) AS t(id, ts, u, d, ms, sec, s, ds)
-- arrays
(VALUES
      (1, ARRAY[3, 1, 2, 3], MAP['a', 1, 'b', 2], ARRAY['x', 'y'], 1), (2, ARRAY[5], MAP['c', 3], ARRAY['z', 'x'], 2)
    ) AS t(id, a, m, t, n)
-- json
(VALUES
      (1, '{"a": 1, "b": "text", "c": {"d": true, "e": null}, "f": [1, {"g": 2.50}], "h": 1.0, "i": "12", "j": 1e3}'),
      (2, '{"a": "x", "b": 2}'), (3, 'no json'), (4, CAST(NULL AS STRING)), (5, '[1, 2]'), (6, '{"a": {"b": 1}, "b": [1], "h": 12345678901234567890}')
    ) AS t(id, j)
-- orders
(VALUES (1, 'a', 10, TIMESTAMP '2024-01-01 00:00:10'), (2, 'a', 5, TIMESTAMP '2024-01-01 00:01:10'),
      (3, 'b', 7, TIMESTAMP '2024-01-01 00:04:59'), (4, 'a', 1, TIMESTAMP '2024-01-01 00:05:00'),
      (5, 'b', CAST(NULL AS INT), TIMESTAMP '2024-01-01 00:12:00'), (6, 'a', 2, TIMESTAMP '2024-01-02 05:00:00')
    ) AS o(id, k, n, t)
