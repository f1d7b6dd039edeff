/*
** Stands in front of every file of Lua when it is compiled (build.rs), and makes work count that Lua does inside of single instructions.
**
** Lua's own hook counts instructions. But one instruction may compare two strings of megabytes, copy thousands of arguments, walk a chain of keys
** that were chosen to collide, or look through a million empty slots. Whatever is a loop in Lua's C code passes through a macro of its own headers
** or a function of the C library; those are defined anew here, each with a charge.
**
** M1: a charge depends on what the script did alone, never on a clock, an address outside of the room or the locale. So every node stops at the
**     same point.
** M2: once the work is used up, the next charge raises the error for "no memory", as an allocation that fails does there. Only the innermost
**     protected call can be under way then, and Lua's own functions; never a frame of Rust that has to be left in order: those set `is_quiet`.
**     What Lua was building then (a table that grows) may be left half-built, so from the first such error to the end of the run nothing may look
**     into a table or collect garbage: every way there charges first, and the room is thrown away afterwards.
** M3: Lua behaves as before in everything else. Only the order of strings does not follow the locale: it is that of their bytes, as in Redis.
*/
#ifndef warlock_meter_h
#define warlock_meter_h

/* Parts of luaconf.h that a file asks for before it includes anything. */
#define LUA_CORE
#define loslib_c
#include "luaconf.h"
#undef loslib_c

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the meter ---- */

struct lua_State;

/* `Meter` of src/lib.rs is the same. */
struct warlock_meter {
  long long left;            /* grains of work; 16 are a step, which is about an instruction */
  struct lua_State *running; /* the coroutine that runs */
  int is_quiet;              /* raise nothing */
};

/* In every file, and merged into one by the linker. */
#define WARLOCK_MERGED __attribute__((weak, visibility("hidden")))

WARLOCK_MERGED __thread struct warlock_meter warlock_meter __attribute__((tls_model("initial-exec")));

void warlock_stop(void);
struct warlock_meter *warlock_meter_place(void);

static inline void warlock_charge(long long grains) {
  warlock_meter.left -= grains;
  if (__builtin_expect(warlock_meter.left < 0, 0)) warlock_stop();
}

#define WARLOCK_STEP 16

/* The same where Lua is in the middle of putting something together that it needs to say that it stops: the next charge stops. */
static inline void warlock_note(long long grains) { warlock_meter.left -= grains; }

/* Lua calls this with the state that works from here on: when a function of its interface is entered, and when a C function came back. */
#define lua_lock(L) ((void)(warlock_meter.running = (L)))
#define lua_unlock(L) ((void)0)
#define luai_threadyield(L) ((void)0)

#include "ldo.h"
#include "llex.h"
#include "lmem.h"
#include "lobject.h"
#include "lopcodes.h"
#include "lparser.h"
#include "lstate.h"
#include "ltable.h"
#include "ltm.h"

/* ---- bytes: 256 that are copied or compared are a step ---- */

#define WARLOCK_BYTES(n) warlock_charge((long long)((n) / 16))

static inline size_t warlock_strlen(const char *s) {
  size_t length = strlen(s);
  WARLOCK_BYTES(length);
  return length;
}

static inline size_t warlock_strcspn(const char *s, const char *set) {
  size_t length = strcspn(s, set);
  WARLOCK_BYTES(length * 4);
  return length;
}

/* Up to the first zero, byte by byte. One more step, since Lua calls it for every piece between two zeros. */
static inline int warlock_strcoll(const char *l, const char *r) {
  warlock_charge(WARLOCK_STEP);
  for (;;) {
    int order = strncmp(l, r, 64);
    if (order != 0) return order;
    if (memchr(l, 0, 64) != NULL) return 0;
    warlock_charge(WARLOCK_STEP);
    l += 64;
    r += 64;
  }
}

/* Far from 1 the C library calculates with hundreds of digits. */
static inline int warlock_number2str(char *out, double n) {
  double size = n < 0 ? -n : n;
  warlock_charge((size > 1e20 || (size < 1e-20 && size > 0) ? 20 : 5) * WARLOCK_STEP);
  return sprintf(out, "%.14g", n);
}

static inline void warlock_digits(const char *s) {
  warlock_charge((5 + (long long)(strlen(s) / 8)) * WARLOCK_STEP);
}

#undef lua_number2str
#define lua_number2str(s, n) warlock_number2str((s), (n))
#undef lua_str2number
#define lua_str2number(s, p) (warlock_digits(s), strtod((s), (p)))
#undef strtoul
#define strtoul(s, p, base) (warlock_digits(s), strtoul((s), (p), (base)))
#undef strcoll
#define strcoll(l, r) warlock_strcoll((l), (r))
#undef strchr
#define strchr(s, c) (WARLOCK_BYTES(strlen(s)), strchr((s), (c)))
#undef strcspn
#define strcspn(s, set) warlock_strcspn((s), (set))
#undef strlen
#define strlen(s) warlock_strlen(s)
#undef memcpy
#define memcpy(to, from, n) (WARLOCK_BYTES(n), memcpy((to), (from), (n)))
#undef memcmp
#define memcmp(l, r, n) (WARLOCK_BYTES(n), memcmp((l), (r), (n)))

/* ---- values that are copied: arguments, results, `...` ---- */

#undef setobjs2s
#define setobjs2s(L, to, from) { warlock_charge(1); setobj(L, to, from); }

/* ---- links that are followed; each may be a miss of the caches ---- */

/* Keys of a table with the same place. */
#undef gnext
#define gnext(n) (*(warlock_charge(WARLOCK_STEP), &(n)->i_key.nk.next))
/* Strings with the same place among all strings. */
#undef rawgco2ts
#define rawgco2ts(o) (warlock_charge(WARLOCK_STEP), &((o)->ts))
/* The same while they are all put into another table, or thrown away. Half a table would have lost the text of the error that stops the script. */
#undef gco2ts
#define gco2ts(o) (warlock_note(WARLOCK_STEP), &((o)->ts.tsv))
/* Variables of a function that closures share. */
#undef ngcotouv
#define ngcotouv(o) (warlock_charge(2), &((o)->uv))
/* Calls that are looked through for a level. */
#undef f_isLua
#define f_isLua(ci) (warlock_charge(1), !ci_func(ci)->c.isC)
/* Jumps, which the compiler keeps in lists. */
#undef GETARG_sBx
#define GETARG_sBx(i) (warlock_charge(2), GETARG_Bx(i) - MAXARG_sBx)

/* ---- functions: charged where they are called from other files than their own ---- */

/* A file defines its own name as nothing, after this header: `WARLOCK_OF(a, ltable_c)` is `a_` there and `a_ltable_c` in all others. */
#define WARLOCK_JOIN(a, b) a##_##b
#define WARLOCK_OF(a, file) WARLOCK_JOIN(a, file)

int warlock_getn(Table *t);
int warlock_next(lua_State *L, Table *t, StkId key);
const TValue *warlock_gettm(Table *events, TMS event, TString *name);
void warlock_token(LexState *ls);

/* `#t`. It ends by looking at every slot if there are keys on purpose where it doubles its steps; the last such place tells. */
WARLOCK_MERGED int warlock_getn(Table *t) {
  if (sizenode(t) > 1 && (t->sizearray == 0 || !ttisnil(&t->array[t->sizearray - 1]))) {
    unsigned int last = (unsigned int)t->sizearray + 1;
    while (last <= (unsigned int)MAX_INT / 2) last *= 2;
    if (!ttisnil(luaH_getnum(t, (int)last))) warlock_charge((long long)t->sizearray + sizenode(t));
  }
  return luaH_getn(t);
}

/* Where a key is among all slots of its table; before them if it is nowhere. */
static inline long long warlock_slot(Table *t, const TValue *key) {
  const TValue *value = luaH_get(t, key);
  if (value == luaO_nilobject) return -1;
  if (value >= t->array && value < t->array + t->sizearray) return value - t->array;
  return t->sizearray + (cast(const Node *, value) - t->node);
}

/* `next` passes all slots that are empty. */
WARLOCK_MERGED int warlock_next(lua_State *L, Table *t, StkId key) {
  long long from = warlock_slot(t, key);
  int is_found = luaH_next(L, t, key);
  long long to = is_found ? warlock_slot(t, key) : (long long)t->sizearray + sizenode(t);
  warlock_charge(to - from);
  return is_found;
}

/* A look into a metatable; one instruction may follow a hundred of them. */
WARLOCK_MERGED const TValue *warlock_gettm(Table *events, TMS event, TString *name) {
  warlock_charge(WARLOCK_STEP);
  return luaT_gettm(events, event, name);
}

/* The compiler looks for a name among the variables of every function around it. */
WARLOCK_MERGED void warlock_token(LexState *ls) {
  luaX_next(ls);
  if (ls->t.token == TK_NAME) {
    const FuncState *fs;
    long long names = 0;
    for (fs = ls->fs; fs != NULL; fs = fs->prev) names += 2 + fs->nactvar + fs->f->nups;
    warlock_charge(names);
  }
}

WARLOCK_MERGED void warlock_stop(void) {
  lua_State *L = warlock_meter.running;
  if (!warlock_meter.is_quiet && L != NULL && L->errorJmp != NULL) luaD_throw(L, LUA_ERRMEM);
}

/* A coroutine cannot say why it ends when there is no memory for the text, and nothing of its own protects it: Lua would end the process here. What protects
** the script protects the coroutine, too. (Only without memory or work, so nothing goes on after it.) */
static inline void warlock_escape(lua_State *L) {
  lua_State *first = G(L)->mainthread;
  if (L != first && first->errorJmp != NULL) {
    warlock_meter.running = first;
    luaD_throw(first, LUA_ERRMEM);
  }
}

#undef exit
#define exit(code) (warlock_escape(L), exit(code))

/* Not merged away: Rust asks for it. */
__attribute__((weak)) struct warlock_meter *warlock_meter_place(void) { return &warlock_meter; }

#define warlock_call_getn_ luaH_getn
#define warlock_call_getn_ltable_c warlock_getn
#define luaH_getn WARLOCK_OF(warlock_call_getn, ltable_c)

#define warlock_call_next_ luaH_next
#define warlock_call_next_ltable_c warlock_next
#define luaH_next WARLOCK_OF(warlock_call_next, ltable_c)

#define warlock_call_gettm_ luaT_gettm
#define warlock_call_gettm_ltm_c warlock_gettm
#define luaT_gettm WARLOCK_OF(warlock_call_gettm, ltm_c)

#define warlock_call_token_ luaX_next
#define warlock_call_token_llex_c warlock_token
#define luaX_next WARLOCK_OF(warlock_call_token, llex_c)

/* A table that gets new slots for its hash looks at all of its array, too: `t`, in the only function of ltable.c that makes a vector. */
#define warlock_vector(L, n, type) cast(type *, luaM_reallocv(L, NULL, 0, n, sizeof(type)))
#define warlock_vector_(L, n, type) (warlock_charge(t->sizearray), warlock_vector(L, n, type))
#define warlock_vector_ltable_c warlock_vector
#undef luaM_newvector
#define luaM_newvector WARLOCK_OF(warlock_vector, ltable_c)

#endif
