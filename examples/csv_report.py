"""Read a CSV of sales from standard input, print revenue by region."""

import sys

import pandas as pd

sales = pd.read_csv(sys.stdin)
sales["revenue"] = sales["units"] * sales["price"]
report = sales.groupby("region")["revenue"].agg(["sum", "mean", "count"]).round(2)
print(report.sort_values("sum", ascending=False).to_string())
