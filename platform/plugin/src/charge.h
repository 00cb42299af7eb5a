/* Included before QuickJS's own sources; adapt_quickjs.py says where JEET_CHARGE is put and why.
 *
 * QuickJS limits recursion by the C stack in linear memory. wasm keeps most of a C frame elsewhere, on a stack that only the
 * host can measure, and a function with few addressable locals takes ten times as much there as here: nested JSON would
 * exhaust the host's stack, which ends the instance, long before QuickJS saw its own limit. A charge makes such a frame
 * as large here as it is there, within a factor that the tests hold. */
#define JEET_CHARGE(bytes)   \
    char jeet_charge[bytes]; \
    __asm__ volatile("" : : "r"(jeet_charge) : "memory")
