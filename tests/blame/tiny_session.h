// The smallest session in which every op has something to do: a long request whose window has
// moved, whose indexer selects and which completes a C128A entry, and a short one that begins, both
// in step 1; step 2 decodes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "app/wiring/wiring.h"
#include "engine/family/models.h"
#include "engine/session/session.h"

namespace attnscope {

// length: of the longer prompt; step 0 leaves 22 tokens of it.
inline Scenario tiny_scenario(std::uint64_t seed = 7, std::int64_t longest = 396,
                              const char* profile = "vllm") {
  Scenario s;
  s.name = "blame";
  s.model = *preset("tiny", {0, 1, 2});
  s.model.switches = *profile_switches(profile);
  s.model.hidden = 128;
  s.model.heads = 4;
  s.model.o_groups = 2;
  s.model.q_lora = 128;
  s.model.index_heads = 8;
  s.model.index_topk = 64;
  s.seed = seed;
  s.pool_blocks = 250;
  s.limits = {longest - 22, 4};
  s.decode_steps = 2;
  for (const std::int64_t length : {longest, std::int64_t{18}}) {
    ScenarioRequest request;
    request.name = "r" + std::to_string(s.requests.size());
    for (std::int64_t t = 0; t < length; ++t) {
      request.tokens.push_back(static_cast<std::int32_t>((t * 37 + t * t / 7 + length) % 256));
    }
    request.max_new_tokens = 3;
    s.requests.push_back(request);
  }
  return s;
}

inline constexpr std::int64_t kStepUnderTest = 1;

inline std::unique_ptr<Session> session_of(const Scenario& scenario,
                                           References references = References::kSim) {
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  options.rewind_every = 1;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

inline std::unique_ptr<Session> tiny_session(std::uint64_t seed = 7, std::int64_t longest = 396,
                                             References references = References::kSim) {
  return session_of(tiny_scenario(seed, longest), references);
}

}  // namespace attnscope
