/* The kernels in a program of their own, for a processor that is emulated: calls come in, what they changed goes out.

   A call: which one; blocks of memory, each its size and its bytes; pointers in them, each (block, offset, block);
   numbers of block and of two more arguments. Back: the result and all blocks. */

#include "pass.c"

#include <stdio.h>
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#endif

static int64_t number(void) {
    int64_t read = 0;
    if (fread(&read, 8, 1, stdin) != 1) exit(0);
    return read;
}

int main(void) {
#if defined(_WIN32) /* or bytes that look like the end of a line are changed */
    _setmode(_fileno(stdin), _O_BINARY), _setmode(_fileno(stdout), _O_BINARY);
#endif
    for (;;) {
        int64_t which = number(), blocks = number(), result = 0;
        char *at[256];
        int64_t size[256];
        for (int64_t i = 0; i < blocks; i++) {
            size[i] = number();
            at[i] = malloc(size[i] + 1);
            if (fread(at[i], 1, size[i], stdin) != (size_t)size[i]) return 1;
        }
        for (int64_t pointers = number(); pointers; pointers--) {
            int64_t block = number(), offset = number(), target = number();
            memcpy(at[block] + offset, &at[target], 8);
        }
        int64_t first = number(), second = number(), third = number(), count = number(), threads = number();
        if (which == 0) result = triforce_pass((Pass *)at[first]);
        if (which == 1) result = triforce_attention((Attention *)at[first], threads);
        if (which == 2)
            result = triforce_linear((Linear *)at[first], (uint16_t *)at[second], (float *)at[third], count, threads);
        if (which == 3) result = triforce_laws((Laws *)at[first], count, threads);
        if (which == 4) result = triforce_heaviest((Heaviest *)at[first], count);
        if (which == 5) result = triforce_gather((Gathering *)at[first], count);
        if (which == 6) result = triforce_panels((Panels *)at[first], threads);
        fwrite(&result, 8, 1, stdout);
        for (int64_t i = 0; i < blocks; i++) {
            fwrite(at[i], 1, size[i], stdout);
            free(at[i]);
        }
        fflush(stdout);
    }
}
