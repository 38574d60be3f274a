-- The report that load.py reads: requests, microseconds, errors of any kind, p99 in microseconds.
function done(summary, latency)
  local errors = summary.errors
  print(string.format("report %d %d %d %.1f", summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout, latency:percentile(99)))
end
