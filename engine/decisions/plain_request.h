// A request as the plain model sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::plain {

// When a request is over.
struct Stop {
  std::int64_t max_tokens = 0;  // sampled ones
  std::int64_t min_tokens = 0;  // before these nothing stops it
  std::int32_t end_token = -1;  // -1 = none
  bool ignore_end = false;
  std::vector<std::int32_t> stop_tokens;
};

// An image or a sound: tokens [offset, offset + length) stand for it.
struct Media {
  std::string identifier;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

// What tells equal tokens of two requests apart.
struct Apart {
  std::string adapter;       // of all its tokens
  std::string salt;          // of the first block, and so of what follows it
  std::vector<Media> media;  // of the blocks in which they are
};

enum class State { kWaiting, kRunning, kStopped, kLength, kAborted };

struct Request {
  std::int64_t id = -1;
  std::vector<std::int32_t> tokens;  // prompt, then sampled
  std::int64_t prompt = 0;           // tokens
  std::int64_t priority = 0;         // smaller is more urgent
  double arrival = 0;
  Stop stop;
  Apart apart;
  bool computes_all = false;  // finds nothing computed, whatever there is
  State state = State::kWaiting;
  std::int64_t computed = 0;
  std::int64_t drafts = 0;              // tokens behind the known ones that the next step computes
  std::int64_t coming = 0;              // tokens that steps in flight will have sampled
  std::int64_t in_flight = 0;           // computed tokens of steps whose results are not in
  std::int64_t away = 0;                // computed tokens whose rows lie in host memory
  std::vector<std::int64_t> prefixes;   // [i]: name of its first (i + 1) * hash_block tokens
  std::optional<std::int64_t> longest;  // tokens that one kind of group had beyond its last hit

  std::int64_t known() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t sampled() const { return known() - prompt; }
  bool is_over() const { return state != State::kWaiting && state != State::kRunning; }
};

}  // namespace attnscope::plain
