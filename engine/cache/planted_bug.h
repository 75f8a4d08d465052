// Bugs that a test build plants into the block manager to show that each is caught. Only that build
// defines ATTNSCOPE_PLANTED_BUGS; everywhere else planted() is a constant and costs nothing.
#pragma once

namespace attnscope {

enum class PlantedBug {
  kNone,
  kReleaseSkipsOne,      // a release forgets one decrement
  kTouchWithoutUnlink,   // a touched block stays in the free list
  kKeyKeptAfterPop,      // a block handed out keeps its key
  kGroupMissingInKey,    // keys of different groups collide
  kWindowNeedsOneLess,   // lookup is content with one block less than a window
  kHitAllTokens,         // a lookup may cover the last token
  kDraftDropOmitted,     // a flagged group keeps its last hit block
  kLookaheadIgnored,     // no room for the lookahead
  kOnePass,              // the lookup over groups stops after one pass
  kAlignmentIgnored,     // windowed hits end anywhere
  kCapOnStep,            // the admission cap limits what a step is said to need
  kEvictableNotCounted,  // touched free blocks do not count as needed
  kNoFullSequenceGate,   // admission looks at the first chunk alone
  kFreeNotReversed,      // tables are freed head first
  kDropAscending,        // a window's dropped blocks are freed oldest first
  kDropOneTooMany,       // a window loses one token too many
  kCommitNotClamped,     // blocks beyond the last aligned boundary get keys
  kNoRetentionMask,      // every windowed block gets a key
  kNewestDuplicateWins,  // of blocks with equal keys the newest is found
  kDoubleListing,        // a block is listed twice in one release
  kAdoptAfterGrow,       // hits are touched after new blocks were taken
  kNullFreeable,         // the null block is released like any other
};

#ifdef ATTNSCOPE_PLANTED_BUGS
extern PlantedBug planted_bug;
inline bool planted(PlantedBug bug) { return planted_bug == bug; }
#else
constexpr bool planted(PlantedBug) { return false; }
#endif

}  // namespace attnscope
