-- Nexmark-like queries over the schemas of queries.py, separated by blank lines

SELECT auction, bidder, price * 0.908 AS price, at FROM bids

SELECT bid.auction, bid.price FROM events WHERE kind = 'bid' AND bid.auction % 123 = 0

SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN persons p ON a.seller = p.id WHERE a.category = 10 AND
p.state IN ('OR', 'ID', 'CA')

SELECT q.category, avg(q.final) AS price FROM (SELECT a.id, a.category, max(b.price) AS final FROM (SELECT auction.*
FROM events WHERE kind = 'auction') a JOIN (SELECT bid.* FROM events WHERE kind = 'bid') b ON a.id = b.auction AND
b.at BETWEEN a.at AND a.expires GROUP BY a.id, a.category) q GROUP BY 1

WITH counts AS (SELECT auction, window(at, '10 seconds', '2 seconds') AS w, count(*) AS n FROM (SELECT bid.* FROM
events WHERE kind = 'bid') GROUP BY 1, 2) SELECT c.auction, c.n FROM counts c JOIN (SELECT max(n) AS m, w FROM
counts GROUP BY w) x ON c.w = x.w AND c.n >= x.m

SELECT b.auction, b.price, b.bidder FROM bids b JOIN (SELECT max(price) AS top, window(at, '10 seconds').end AS ends
FROM bids GROUP BY window(at, '10 seconds')) t ON b.price = t.top WHERE b.at <= t.ends

SELECT p.id, p.name, p.w.start AS starts FROM (SELECT id, name, window(at, '10 seconds') AS w FROM persons) p JOIN
(SELECT seller, window(at, '10 seconds') AS w FROM auctions) a ON p.id = a.seller AND p.w = a.w

SELECT l.auction, l.best.price, l.best.bidder FROM (SELECT auction, max_by(struct(price, bidder, at), price) AS best
FROM bids GROUP BY auction) l

SELECT auction, bidder, price, at, date_format(at, 'yyyy-MM-dd') AS day, date_format(at, 'HH:mm') AS time FROM bids

SELECT bidder, count(*) AS n, session_window.start AS starts FROM bids GROUP BY bidder, session_window(at, '10
seconds')

SELECT auction, CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END AS time, regexp_extract(url,
'(&|^)channel_id=([^&]*)', 2) AS channel FROM bids WHERE price * 0.908 > 1000000

SELECT channel, window(at, '1 day').start AS day, count(*) AS n, count(*) FILTER (WHERE price < 10000) AS low,
size(collect_set(bidder)) AS bidders FROM bids GROUP BY channel, window(at, '1 day')

SELECT auction, date_trunc('day', at) AS day, min(price) AS least, avg(price) AS mean FROM bids GROUP BY ALL

SELECT bidder, slice(sort_array(collect_list(struct(at, price)), false), 1, 10) AS newest FROM bids GROUP BY bidder

SELECT x.sku, sum(x.amount) AS n FROM events LATERAL VIEW explode(parts) AS x GROUP BY x.sku HAVING n > 3

SELECT sku, upper(tag) AS t FROM (SELECT inline(parts), tags FROM events) LATERAL VIEW explode(tags) AS tag

-- TPC-H-like queries over the schemas of queries.py, separated by blank lines

SELECT l_returnflag, l_linestatus, sum(l_quantity) AS qty, sum(l_extendedprice * (1 - l_discount)) AS price,
count(*) AS n FROM lineitem WHERE l_shipdate <= date '1998-12-01' - INTERVAL '90' DAY GROUP BY 1, 2 ORDER BY 1, 2

SELECT l_orderkey, sum(l_extendedprice) AS revenue, o_orderdate FROM customer JOIN orders ON c_custkey = o_custkey
JOIN lineitem ON l_orderkey = o_orderkey WHERE c_mktsegment = 'BUILDING' GROUP BY l_orderkey, o_orderdate ORDER BY
revenue DESC LIMIT 10

SELECT o_orderpriority, count(*) AS n FROM orders WHERE EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey
AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority

SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM customer, orders, lineitem, nation WHERE
c_custkey = o_custkey AND l_orderkey = o_orderkey AND c_nationkey = n_nationkey GROUP BY n_name ORDER BY revenue

SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_discount BETWEEN 0.05 AND 0.07

SELECT year, sum(volume) FROM (SELECT extract(year FROM l_shipdate) AS year, l_extendedprice * (1 - l_discount) AS
volume FROM lineitem JOIN orders ON o_orderkey = l_orderkey) GROUP BY year

SELECT n_name, year(o_orderdate) AS y, sum(CASE WHEN n_name = 'BRAZIL' THEN o_totalprice ELSE 0 END) /
sum(o_totalprice) AS share FROM orders JOIN customer ON o_custkey = c_custkey JOIN nation n ON c_nationkey =
n.n_nationkey GROUP BY 1, 2

SELECT c_count, count(*) AS n FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customer LEFT OUTER JOIN
orders ON c_custkey = o_custkey AND o_orderstatus <> 'F' GROUP BY c_custkey) AS c (c_custkey, c_count) GROUP BY
c_count

WITH revenue (supplier, total) AS (SELECT l_suppkey, sum(l_extendedprice) FROM lineitem GROUP BY l_suppkey) SELECT
supplier, total FROM revenue WHERE total = (SELECT max(total) FROM revenue)

SELECT sum(l_extendedprice) / 7.0 AS y FROM lineitem, part WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND
l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)

SELECT c_name, o_orderkey, sum(l_quantity) AS q FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT
l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300) AND c_custkey = o_custkey AND o_orderkey
= l_orderkey GROUP BY c_name, o_orderkey

SELECT p_brand, p_type, p_size, count(DISTINCT l_suppkey) AS n FROM part JOIN lineitem ON p_partkey = l_partkey
WHERE p_type NOT LIKE 'MEDIUM%' GROUP BY p_brand, p_type, p_size HAVING count(*) > 1

SELECT substring(c_name, 1, 2) AS code, count(*) AS n, sum(c_acctbal) AS total FROM (SELECT * FROM customer c WHERE
NOT EXISTS (SELECT 1 FROM orders o WHERE o.o_custkey = c.c_custkey)) GROUP BY code
