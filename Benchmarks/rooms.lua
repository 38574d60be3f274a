-- Creates rooms, or creates and accepts in turn. Arguments: creates | pairs, a prefix for join codes (long enough
-- that none counts as short), how many creates an accept is behind.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")

local token = string.rep("a1b2c3d4", 8)
local headers = { ["Content-Type"] = "application/json" }
-- wrk generates one request before the first and drops it. That room is never made, so it is never accepted.
local created, accepted = 0, 1
local pairs_too, prefix, behind

function init(arguments)
  pairs_too, prefix, behind = arguments[1] == "pairs", arguments[2], tonumber(arguments[3])
end

function request()
  if not pairs_too or created - accepted < behind then
    created = created + 1
    return wrk.format("POST", "/api/rooms", headers, string.format(
      '{"joinid":"%s-%d","expiresInSeconds":600,"client1":"ann","client1_token":"%s"}', prefix, created, token))
  end
  accepted = accepted + 1
  return wrk.format("POST", "/api/rooms/accept", headers, string.format(
    '{"joinid":"%s-%d","client2":"ben","client2_token":"%s"}', prefix, accepted, token))
end
