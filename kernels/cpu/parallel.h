// parallel_for over a lambda body(begin, end), with the threads of an as_call or without any.
#pragma once

#include <cstdint>

#include "kernels/params/lane.h"

namespace attnscope::cpu {

template <class Body>
void parallel_for(const as_threads* threads, std::int64_t count, std::int64_t grain,
                  const Body& body) {
  if (count <= 0) return;
  if (threads == nullptr || threads->num_threads <= 1 || count <= grain) {
    body(std::int64_t{0}, count);
    return;
  }
  const as_parallel_body run = [](void* ctx, std::int64_t begin, std::int64_t end) {
    (*static_cast<const Body*>(ctx))(begin, end);
  };
  threads->parallel_for(threads->pool, count, grain, run, const_cast<Body*>(&body));
}

template <class Body>
void parallel_for(const as_call* call, std::int64_t count, std::int64_t grain, const Body& body) {
  parallel_for(call != nullptr ? call->threads : nullptr, count, grain, body);
}

}  // namespace attnscope::cpu
