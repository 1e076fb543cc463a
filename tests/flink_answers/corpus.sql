CREATE TEMPORARY VIEW paid_orders AS SELECT order_id, customer_id, price * quantity AS total, order_time FROM orders WHERE status = 'PAID';
CREATE TEMPORARY VIEW per_minute AS SELECT window_start, window_end, behavior, COUNT(*) AS cnt FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, behavior;
-- queries
-- all columns
SELECT * FROM customers;
-- filter with two conditions
SELECT order_id, price, quantity FROM orders WHERE price > 10 AND status <> 'CANCELLED';
-- IN and NOT IN
SELECT user_id, item_id, behavior FROM clicks WHERE behavior IN ('buy', 'cart') AND category_id NOT IN (8);
-- LIKE and IS NULL
SELECT id, name FROM customers WHERE email LIKE '%@example.org' OR phone IS NULL;
-- BETWEEN
SELECT auction, price FROM bids WHERE price BETWEEN 75 AND 120;
-- arithmetic
SELECT order_id, price * quantity AS total, price * 1.19 AS gross, quantity / 2 AS pairs, MOD(quantity, 3) AS rest FROM orders;
-- CASE over ranges
SELECT sensor, CASE WHEN temperature > 50 THEN 'hot' WHEN temperature < 0 THEN 'cold' ELSE 'normal' END AS level FROM readings;
-- CASE over values
SELECT order_id, CASE status WHEN 'PAID' THEN 1 WHEN 'NEW' THEN 0 ELSE -1 END AS code FROM orders;
-- COALESCE, NULLIF, IF
SELECT id, COALESCE(phone, email, 'none') AS contact, NULLIF(email, '') AS email, IF(phone IS NULL, 0, 1) AS has_phone FROM customers;
-- texts
SELECT id, UPPER(TRIM(name)) AS n, LOWER(email) AS e, CHAR_LENGTH(name) AS l, SUBSTRING(phone FROM 2 FOR 2) AS p, name || ' <' || email || '>' AS m, CONCAT_WS('-', name, phone) AS c, REPLACE(name, ' ', '_') AS r FROM customers;
-- URL parts
SELECT auction, SPLIT_INDEX(url, '/', 2) AS host, SPLIT_INDEX(url, '/', 3) AS dir, REGEXP_EXTRACT(url, '(&|^|\?)channel_id=([^&]*)', 2) AS channel_id FROM bids;
-- channel of a URL
SELECT auction, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1' ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id FROM bids WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR LOWER(channel) IN ('apple', 'google');
-- user function of characters
SELECT auction, 0.908 * price AS price, CASE WHEN HOUR(date_time) >= 8 AND HOUR(date_time) <= 18 THEN 'day' ELSE 'night' END AS bid_time, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts FROM bids WHERE 0.908 * price > 90;
-- patterns of times
SELECT order_id, DATE_FORMAT(order_time, 'yyyy-MM-dd') AS dt, DATE_FORMAT(order_time, 'HH:mm') AS hm, CAST(DATE_FORMAT(order_time, 'yyyyMMddHH') AS BIGINT) AS h FROM orders;
-- parts of times
SELECT auction, bidder, price, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt, EXTRACT(HOUR FROM date_time) AS h, YEAR(date_time) AS y, MONTH(date_time) AS m, DAYOFMONTH(date_time) AS d FROM bids;
-- seconds since 1970
SELECT sensor, FROM_UNIXTIME(epoch) AS t, TO_TIMESTAMP(FROM_UNIXTIME(epoch)) AS ts, UNIX_TIMESTAMP(event_ts) AS s FROM readings;
-- milliseconds since 1970
SELECT user_id, TO_TIMESTAMP_LTZ(ms, 3) AS t, TO_TIMESTAMP(FROM_UNIXTIME(ms / 1000, 'yyyy-MM-dd HH:mm:ss')) AS ts, CAST(ms / 1000 AS INT) AS s FROM clicks;
-- differences of times
SELECT id, TIMESTAMPDIFF(MINUTE, starts, expires) AS m, TIMESTAMPADD(HOUR, 2, expires) AS t, expires - INTERVAL '30' SECOND AS e FROM auctions;
-- time as text
SELECT order_id, CAST(order_time AS STRING) AS t FROM orders;
-- casts
SELECT sensor, CAST(temperature AS INT) AS t, CAST(battery AS STRING) AS b, CAST(humidity AS DOUBLE) AS h, CAST(event_ts AS TIMESTAMP(3)) AS ts, CAST(epoch AS VARCHAR) AS e, TRY_CAST(payload AS INT) AS p FROM readings;
-- numbers
SELECT sensor, ROUND(temperature, 1) AS r, ABS(temperature) AS a, FLOOR(temperature) AS f, CEIL(temperature) AS c, POWER(battery, 2) AS p, SQRT(epoch) AS s, battery / 10 AS b FROM readings;
-- values of JSON
SELECT sensor, JSON_VALUE(payload, '$.id') AS id, JSON_VALUE(payload, '$.list[1]') AS x, JSON_VALUE(payload, '$.v.ok' RETURNING BOOLEAN) AS ok FROM readings;
-- a part of JSON
SELECT sensor, JSON_QUERY(payload, '$.v') AS v, JSON_QUERY(payload, '$.list') AS l FROM readings;
-- JSON of columns
SELECT order_id, JSON_OBJECT('id' VALUE order_id, 'price' VALUE price) AS doc FROM orders;
-- fields of rows and maps
SELECT sensor, r.place.name AS name, r.place.lat AS lat, attributes['unit'] AS unit, tags[1] AS first_tag, CARDINALITY(tags) AS n FROM readings AS r;
-- elements of arrays
SELECT sensor, tag FROM readings CROSS JOIN UNNEST(tags) AS t (tag);
-- elements of arrays, or NULL
SELECT r.sensor, t.tag FROM readings AS r LEFT JOIN UNNEST(r.tags) AS t(tag) ON TRUE;
-- elements counted
SELECT tag, COUNT(*) AS n FROM readings CROSS JOIN UNNEST(tags) AS t (tag) GROUP BY tag;
-- a literal array
SELECT sensor, ARRAY[sensor, 'x'] AS a, MAP['k', battery] AS m, ROW(sensor, battery) AS r FROM readings;
-- tables together
SELECT order_id AS id, order_time AS t FROM orders UNION ALL SELECT shipment_id, ship_time FROM shipments;
-- tables together without repetition
SELECT order_id FROM orders UNION SELECT order_id FROM shipments;
-- DISTINCT
SELECT DISTINCT user_id, category_id FROM clicks;
-- GROUP BY
SELECT customer_id, COUNT(*) AS orders, SUM(price * quantity) AS spent, MAX(order_time) AS last FROM orders GROUP BY customer_id;
-- MIN and MAX
SELECT release_year, MIN(rating) AS min_rating, MAX(rating) AS max_rating, AVG(rating) AS mean FROM ratings GROUP BY release_year;
-- all rows
SELECT COUNT(*) AS n, COUNT(DISTINCT user_id) AS users FROM clicks;
-- HAVING
SELECT title, COUNT(*) AS n FROM ratings GROUP BY title HAVING COUNT(*) > 1;
-- counts with FILTER
SELECT auction, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS d, COUNT(*) AS total, COUNT(*) FILTER (WHERE price < 100) AS low, COUNT(DISTINCT bidder) FILTER (WHERE price >= 100) AS high FROM bids GROUP BY auction, DATE_FORMAT(date_time, 'yyyy-MM-dd');
-- counts with CASE
SELECT user_id, SUM(CASE WHEN behavior = 'buy' THEN 1 ELSE 0 END) AS buys, COUNT(CASE WHEN behavior = 'pv' THEN 1 END) AS pvs FROM clicks GROUP BY user_id;
-- whole averages
SELECT auction, AVG(price) AS mean, SUM(price) / COUNT(*) AS mean_too FROM bids GROUP BY auction;
-- texts together
SELECT customer_id, LISTAGG(product) AS products FROM orders WHERE customer_id IN (3) GROUP BY customer_id;
-- last value
SELECT sensor, LAST_VALUE(temperature) AS t FROM readings GROUP BY sensor;
-- collected values
SELECT customer_id, COLLECT(product) AS products FROM orders GROUP BY customer_id;
-- array of values
SELECT customer_id, ARRAY_AGG(product) AS products FROM orders GROUP BY customer_id;
-- TUMBLE
SELECT window_start, window_end, COUNT(*) AS n, AVG(rating) AS mean FROM TABLE(TUMBLE(TABLE ratings, DESCRIPTOR(rating_time), INTERVAL '6' HOURS)) GROUP BY window_start, window_end;
-- TUMBLE with a key
SELECT category_id, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTES)) GROUP BY category_id, window_start, window_end;
-- TUMBLE with names
SELECT window_start, behavior, COUNT(DISTINCT user_id) AS uv FROM TABLE(TUMBLE(DATA => TABLE clicks, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, behavior;
-- TUMBLE of part of the rows
SELECT window_end, SUM(price) AS total FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(order_time), INTERVAL '5' MINUTE)) WHERE status = 'PAID' GROUP BY window_start, window_end;
-- TUMBLE of a sub-query
SELECT window_start, window_end, url_host, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT ts, SPLIT_INDEX(url, '/', 2) AS url_host FROM clicks), DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, url_host;
-- TUMBLE of a view
SELECT window_start, SUM(total) AS total FROM TABLE(TUMBLE(TABLE paid_orders, DESCRIPTOR(order_time), INTERVAL '1' HOUR)) GROUP BY window_start, window_end;
-- HOP
SELECT title, window_start, window_end, AVG(rating) AS mean FROM TABLE(HOP(TABLE ratings, DESCRIPTOR(rating_time), INTERVAL '6' HOURS, INTERVAL '12' HOURS)) GROUP BY title, window_start, window_end;
-- HOP of seconds
SELECT window_start, auction, COUNT(*) AS n FROM TABLE(HOP(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end, auction;
-- SESSION
SELECT user_id, window_start, window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE clicks PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '2' MINUTES)) GROUP BY user_id, window_start, window_end;
-- CUMULATE
SELECT window_start, window_end, SUM(price) AS total FROM TABLE(CUMULATE(TABLE orders, DESCRIPTOR(order_time), INTERVAL '1' HOURS, INTERVAL '1' DAYS)) GROUP BY window_start, window_end;
-- CUMULATE with a key
SELECT behavior, window_start, window_end, COUNT(DISTINCT user_id) AS uv FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '20' MINUTES)) GROUP BY behavior, window_start, window_end;
-- GROUP BY TUMBLE
SELECT customer_id, TUMBLE_START(order_time, INTERVAL '1' HOUR) AS s, TUMBLE_END(order_time, INTERVAL '1' HOUR) AS e, COUNT(*) AS n FROM orders GROUP BY TUMBLE(order_time, INTERVAL '1' HOUR), customer_id;
-- GROUP BY TUMBLE with the time of the window
SELECT TUMBLE_ROWTIME(order_time, INTERVAL '10' MINUTE) AS rt, currency, SUM(quantity) AS q FROM orders GROUP BY currency, TUMBLE(order_time, INTERVAL '10' MINUTE);
-- GROUP BY HOP
SELECT HOP_START(date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND) AS s, auction, COUNT(*) AS n FROM bids GROUP BY auction, HOP(date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND);
-- GROUP BY SESSION
SELECT bidder, COUNT(*) AS n, SESSION_START(date_time, INTERVAL '10' SECOND) AS s, SESSION_END(date_time, INTERVAL '10' SECOND) AS e FROM bids GROUP BY bidder, SESSION(date_time, INTERVAL '10' SECOND);
-- window as text
SELECT CAST(window_start AS STRING) AS s, DATE_FORMAT(window_end, 'HH:mm:ss') AS e, behavior, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, behavior;
-- rows with their windows
SELECT auction, price, window_start, window_end FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECONDS));
-- windows of windows
SELECT window_start, window_end, SUM(n) AS n, MAX(n) AS top FROM TABLE(TUMBLE((SELECT window_time AS rt, behavior, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, window_time, behavior), DESCRIPTOR(rt), INTERVAL '1' HOUR)) GROUP BY window_start, window_end;
-- deduplication, newest
SELECT order_id, customer_id, status, order_time FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY order_time DESC) AS rn FROM orders) WHERE rn = 1;
-- deduplication, first
SELECT user_id, url, ts FROM (SELECT user_id, url, ts, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts ASC) AS row_num FROM clicks) t WHERE row_num = 1;
-- deduplication by two keys
SELECT * FROM (SELECT user_id, item_id, behavior, ROW_NUMBER() OVER (PARTITION BY user_id, item_id ORDER BY ts DESC) AS num FROM clicks WHERE behavior <> 'fav') WHERE num = 1;
-- deduplication with WITH
WITH ranked AS (SELECT sensor, temperature, rowtime, ROW_NUMBER() OVER (PARTITION BY sensor ORDER BY rowtime DESC) AS rn FROM readings) SELECT sensor, temperature FROM ranked WHERE rn = 1;
-- highest of each key
SELECT auction, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bids) WHERE rank_number <= 1;
-- Top-N
SELECT product, order_id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY price DESC) AS row_num FROM orders) WHERE row_num <= 2;
-- Top-N with its number
SELECT product, row_num, order_id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY product ORDER BY price DESC, order_id) AS row_num FROM orders) WHERE row_num <= 2;
-- Top-N of counts
SELECT * FROM (SELECT behavior, n, ROW_NUMBER() OVER (ORDER BY n DESC, behavior) AS r FROM (SELECT behavior, COUNT(*) AS n FROM clicks GROUP BY behavior)) WHERE r <= 2;
-- Top-N of a window
SELECT window_start, window_end, category_id, n, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, category_id ASC) AS r FROM (SELECT window_start, window_end, category_id, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, category_id)) WHERE r <= 2;
-- Top-N of the rows of a window
SELECT * FROM (SELECT bidder, price, window_start, window_end, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rownum FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECONDS))) WHERE rownum <= 2;
-- deduplication in a window
SELECT auction, price, window_end FROM (SELECT auction, price, window_start, window_end, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, auction ORDER BY date_time DESC) AS rn FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '1' MINUTES))) WHERE rn = 1;
-- interval join
SELECT o.order_id, s.shipment_id, s.warehouse FROM orders o JOIN shipments s ON o.order_id = s.order_id AND s.ship_time BETWEEN o.order_time AND o.order_time + INTERVAL '4' HOUR;
-- interval join in WHERE
SELECT o.order_id, o.order_time, s.ship_time FROM orders o, shipments s WHERE o.order_id = s.order_id AND o.order_time BETWEEN s.ship_time - INTERVAL '4' HOUR AND s.ship_time;
-- interval join with more conditions
SELECT b.auction, b.price, a.item_name FROM bids AS b INNER JOIN auctions AS a ON b.auction = a.id WHERE b.date_time >= a.starts AND b.date_time < a.starts + INTERVAL '1' MINUTE AND b.price > 60;
-- outer interval join
SELECT o.order_id, s.warehouse FROM orders o LEFT JOIN shipments s ON o.order_id = s.order_id AND s.ship_time BETWEEN o.order_time AND o.order_time + INTERVAL '4' HOUR;
-- join
SELECT o.order_id, c.name, c.email FROM orders AS o JOIN customers AS c ON o.customer_id = c.id;
-- outer join
SELECT o.order_id, c.name FROM orders AS o LEFT JOIN customers AS c ON o.customer_id = c.id;
-- join and GROUP BY
SELECT c.name, COUNT(*) AS n, SUM(o.price) AS spent FROM orders o INNER JOIN customers c ON o.customer_id = c.id GROUP BY c.name;
-- join of two windows
SELECT L.n AS pv, R.n AS buys, L.window_start FROM (SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE behavior = 'pv' GROUP BY window_start, window_end) L JOIN (SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE behavior = 'buy' GROUP BY window_start, window_end) R ON L.window_start = R.window_start AND L.window_end = R.window_end;
-- IN with a sub-query
SELECT order_id, price FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE phone IS NOT NULL);
-- EXISTS
SELECT c.id, c.name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.status = 'PAID');
-- temporal join
SELECT o.order_id, o.price * r.rate AS usd FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.order_time AS r ON o.currency = r.currency;
-- outer temporal join
SELECT o.order_id, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.order_time AS r ON o.currency = r.currency;
-- lookup join
SELECT o.order_id, c.name FROM orders AS o LEFT JOIN customers FOR SYSTEM_TIME AS OF o.proc_time AS c ON o.customer_id = c.id;
-- running total
SELECT order_id, SUM(price) OVER (PARTITION BY customer_id ORDER BY order_time RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS hour_total FROM orders;
-- running average of rows
SELECT order_id, AVG(price) OVER w AS mean, COUNT(*) OVER w AS n FROM orders WINDOW w AS (PARTITION BY product ORDER BY order_time ROWS BETWEEN 2 PRECEDING AND CURRENT ROW);
-- value of the row before
SELECT order_id, price, LAG(price, 1) OVER (PARTITION BY product ORDER BY order_time) AS before FROM orders;
-- MATCH_RECOGNIZE
SELECT * FROM bids MATCH_RECOGNIZE (PARTITION BY auction ORDER BY date_time MEASURES FIRST(A.price) AS first_price, LAST(B.price) AS last_price ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.price > A.price) AS m;
-- view
SELECT customer_id, SUM(total) AS spent FROM paid_orders GROUP BY customer_id;
-- view of windows
SELECT window_start, behavior, cnt FROM per_minute WHERE cnt > 1;
-- WITH
WITH big AS (SELECT * FROM orders WHERE price > 10), named AS (SELECT order_id, UPPER(product) AS product FROM big) SELECT * FROM named WHERE product <> 'DESK';
-- sub-query
SELECT t.product, t.total FROM (SELECT product, price * quantity AS total FROM orders) AS t WHERE t.total > 10;
-- aggregation of an aggregation
SELECT n, COUNT(*) AS users FROM (SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id) GROUP BY n;
-- aggregation of a deduplication
SELECT status, COUNT(*) AS n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY order_time DESC) AS rn FROM orders) WHERE rn = 1 GROUP BY status;
-- options
SELECT id, name FROM customers /*+ OPTIONS('scan.startup.mode' = 'earliest-offset', 'properties.group.id' = 'g') */;
-- ORDER BY time
SELECT order_id, order_time FROM orders ORDER BY order_time;
-- LIMIT
SELECT COUNT(*) AS n FROM (SELECT order_id FROM orders LIMIT 3);
-- processing time
SELECT COUNT(*) AS n FROM (SELECT order_id, PROCTIME() AS pt, CURRENT_TIMESTAMP AS ct FROM orders) AS t;
-- GROUPING SETS
SELECT product, status, COUNT(*) AS n FROM orders GROUP BY GROUPING SETS ((product), (status), ());
-- hashes
SELECT order_id, MD5(order_id) AS m, SHA256(order_id) AS s, UUID() IS NOT NULL AS u FROM orders;
