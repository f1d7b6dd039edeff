-- What is easier said in Lua than in Rust. Runs once, when an interpreter is set up, and gives back the table that scripts see as their
-- globals. Functions that do more work than they have instructions say so first (`spend`).

local native, globals, library = native, _G, {}
local type, error, select, next, tonumber = type, error, select, next, tonumber
local getmetatable, rawget, lua_pcall = getmetatable, rawget, pcall
local spend, step, text, check_table = native.spend, native.step, native.text, native.table
local byte, sub, find, concat = string.byte, string.sub, string.find, table.concat
local lua = {
  setmetatable = setmetatable, rawset = rawset, unpack = unpack, loadstring = loadstring,
  sort = table.sort, insert = table.insert, remove = table.remove,
}

-- Protected tables, each with what is behind it.
local protected = {}

local function readonly()
  error("Attempt to modify a readonly table", 2)
end

local function protect(table)
  local proxy = lua.setmetatable({}, { __index = table, __newindex = readonly, __metatable = false })
  protected[proxy] = table
  return proxy
end

function globals.pairs(t)
  check_table(t)
  return next, protected[t] or t, nil
end

function globals.setmetatable(t, meta)
  check_table(t)
  if protected[t] then error("Attempt to modify a readonly table", 0) end
  return lua.setmetatable(t, meta)
end

function globals.rawset(t, key, value)
  check_table(t)
  if protected[t] then error("Attempt to modify a readonly table", 0) end
  return lua.rawset(t, key, value)
end

function globals.tostring(...)
  local value = ...
  local meta = getmetatable(value)
  local describe = type(meta) == "table" and rawget(meta, "__tostring")
  if describe then return describe(value) end
  return text(...)
end

-- Our own lines are no place that a script's author knows.
local function without_place(message)
  if type(message) == "string" and find(message, "^prelude:%d+: ") then
    local _, last = find(message, "^prelude:%d+: ")
    return sub(message, last + 1)
  end
  return message
end

local function settle(is_done, ...)
  if is_done then return true, ... end
  local message = ...
  if type(message) == "table" and type(rawget(message, "err")) == "string" then
    return false, rawget(message, "err")
  end
  return false, without_place(message)
end

function globals.pcall(...)
  return settle(lua_pcall(...))
end

-- The handler runs after the error, not inside it: Lua counts nothing while it handles an error that counting raised.
local function handle(handler, is_done, ...)
  if is_done then return true, ... end
  local _, result = lua_pcall(handler, ...)
  return false, result
end

function globals.xpcall(call, handler)
  return handle(handler, lua_pcall(call))
end

function globals.unpack(t, first, last)
  check_table(t)
  local from, to = tonumber(first or 1), tonumber(last or #t)
  if from and to then
    if to - from >= 7900 then error("too many results to unpack", 2) end
    spend(to - from)
  end
  return lua.unpack(t, first, last)
end

-- Source only: the interpreter does not check the bytecode that it is given.
function globals.loadstring(source, name)
  if type(source) ~= "string" then source = text(source) end
  if byte(source) == 27 then return nil, "bytecode is not accepted" end
  spend(#source)
  return lua.loadstring(source, name)
end

function globals.load(reader, name)
  if type(reader) ~= "function" then
    error("bad argument #1 to 'load' (function expected, got " .. type(reader) .. ")", 2)
  end
  local pieces = {}
  while true do
    local piece = reader()
    if piece == nil or piece == "" then break end
    if type(piece) ~= "string" then return nil, "reader function must return a string" end
    pieces[#pieces + 1] = piece
  end
  return globals.loadstring(concat(pieces), name or "=(load)")
end

function globals.collectgarbage() return 0 end
function globals.gcinfo() return 0 end

function string.gmatch(s, pattern)
  s, pattern = native.string(s, pattern)
  local at = 1
  local function take(first, last, ...)
    if not first then return nil end
    at = last < first and first + 1 or last + 1
    return ...
  end
  return function() return take(step(s, pattern, at)) end
end
string.gfind = string.gmatch

local function gsub(s, pattern, replacement, most)
  local kind = type(replacement)
  if kind ~= "function" and kind ~= "table" then return native.gsub(s, pattern, replacement, most) end
  s, pattern = native.string(s, pattern)
  local is_anchored = byte(pattern) == 94
  if is_anchored then pattern = sub(pattern, 2) end
  most = most and tonumber(most) or #s + 1
  local function ask(first, last, ...)
    if not first then return nil end
    local value
    if kind == "table" then value = replacement[(...)] else value = replacement(...) end
    if not value then
      value = sub(s, first, last)
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 3)
    end
    return first, last, value
  end
  local pieces, at, count = {}, 1, 0
  while count < most do
    local first, last, value = ask(step(s, pattern, at, is_anchored))
    if not first then break end
    count = count + 1
    pieces[#pieces + 1] = sub(s, at, first - 1)
    pieces[#pieces + 1] = value
    at = last + 1
    if last < first then
      pieces[#pieces + 1] = sub(s, first, first)
      at = first + 1
    end
    if is_anchored or at > #s + 1 then break end
  end
  pieces[#pieces + 1] = sub(s, at)
  return concat(pieces), count
end
string.gsub = gsub

local function less(a, b) return a < b end

-- Every comparison is an instruction of Lua, and so is counted.
function table.sort(t, before)
  check_table(t)
  return lua.sort(t, before or less)
end

function table.insert(t, ...)
  check_table(t)
  local at = tonumber((...))
  if select("#", ...) == 2 and at then spend(#t - at) end
  return lua.insert(t, ...)
end

function table.remove(t, at)
  check_table(t)
  if at == nil then return lua.remove(t) end
  spend(#t - (tonumber(at) or 0))
  return lua.remove(t, at)
end

function table.maxn(t)
  check_table(t)
  local most = 0
  for key in next, t do
    if type(key) == "number" and key > most then most = key end
  end
  return most
end

redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_AOF, redis.REPL_ALL = 0, 1, 1, 2, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = "7.2.4", 0x00070204
cjson.null = native.null()
cjson._NAME, cjson._VERSION = "cjson", "2.1.0"
cmsgpack._NAME, cmsgpack._VERSION = "cmsgpack", "lua-cmsgpack 0.4.0"

for _, name in next, { "dofile", "loadfile", "print", "getfenv", "setfenv", "newproxy", "module", "require", "native" } do
  globals[name] = nil
end
for _, name in next, { "redis", "string", "table", "math", "bit", "cjson", "cmsgpack", "struct", "coroutine" } do
  globals[name] = protect(globals[name])
end

lua.setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. globals.tostring(name) .. "'", 2)
  end,
})
local seen = lua.setmetatable({}, { __index = globals, __newindex = readonly })
protected[seen] = globals
globals._G = seen
return seen
