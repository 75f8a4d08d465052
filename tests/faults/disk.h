// A disk that fails when it is told to. Linked into a test, its calls take the place of the
// system's: writes, opens of new files, syncs, renames and new folders are counted, and one of them
// fails, or writes are cut short.
#pragma once

namespace attnscope::faults {

enum class Fault {
  kNone,
  kFull,      // ENOSPC
  kReadOnly,  // EROFS
  kBroken     // EIO
};

// Which kind of call fails.
enum class Call { kWrite, kCreate, kSync, kRename };

// From now on: call number `at` of this kind and all later ones of it fail.
void fail_from(Call call, int at, Fault fault);
// Writes take at most this many bytes; 0 = all of them.
void shorten_writes(unsigned bytes);
// Back to a sound disk. Returns how many calls of the kind were made since fail_from().
int sound_again();

}  // namespace attnscope::faults
