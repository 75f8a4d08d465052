// The ops of a model timed by context: what each lane does is the timer's business.
#include "app/reports/deepseek_v4/scale_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/reports/scale.h"
#include "app/reports/scale_inputs.h"
#include "app/text/format.h"
#include "engine/backend/call_op.h"

namespace attnscope {
namespace {

// As many calls of a round as memory holds; 0 = not one.
int calls_that_fit(const ScaleOp& op, std::int64_t context, int most, std::int64_t memory,
                   std::int64_t& needed) {
  for (int calls = most; calls > 0; calls /= 2) {
    ScaleInputs counted(nullptr);
    op.make(counted, context, calls);
    needed = static_cast<std::int64_t>(counted.bytes());
    if (needed <= memory) return calls;
  }
  return 0;
}

Result<double> time_op(const ScaleOp& op, const Lane& lane, LaneTimer& timer, std::int64_t context,
                       int calls) {
  ScaleInputs inputs(&timer);
  const std::vector<OpParams> params = op.make(inputs, context, calls);
  if (inputs.error()) return *inputs.error();
  Result<double> us = timer.time([&](const as_call& call) -> Result<void> {
    for (const OpParams& p : params) {
      if (auto ok = call_op(lane.ops[op.op], p.data(), call); !ok) return ok.error();
    }
    return {};
  });
  if (!us) return us.error();
  return *us / calls;
}

void fit(ScaleLine& line) {
  if (line.points.size() < 2) return;
  std::vector<double> x, y;
  for (const ScalePoint& point : line.points) {
    x.push_back(static_cast<double>(line.flat ? point.context : point.x));
    y.push_back(point.us);
  }
  line.fit = fit_line(x, y);
}

// Into the point of this context, which is made in the first pass.
Result<void> measure_point(ScaleOp& op, const Lane& lane, LaneTimer& timer, const ScaleAsked& asked,
                           std::int64_t context, bool first, std::vector<std::string>& left_out) {
  std::int64_t needed = 0;
  const int calls = calls_that_fit(op, context, timer.rounds().calls, asked.memory, needed);
  if (calls == 0) {
    if (first) {
      left_out.push_back(
          fmt::format("{} at {} tokens: its inputs take {}, and {} are free for them", op.line.name,
                      context, format_bytes(static_cast<double>(needed)),
                      format_bytes(static_cast<double>(asked.memory))));
    }
    return {};
  }
  const Result<double> us = time_op(op, lane, timer, context, calls);
  timer.clear();
  if (!us) return us.error();
  if (first) op.line.points.push_back({context, asked.requests * op.x(context), *us, calls});
  ScalePoint& point = *std::ranges::find(op.line.points, context, &ScalePoint::context);
  point.us = std::min(point.us, *us);
  return {};
}

}  // namespace

Result<void> measure_ops(const ModelConfig& config, const Lane& lane, LaneTimer& timer,
                         const ScaleAsked& asked, ScaleResult& out) {
  std::vector<ScaleOp> ops = deepseek_v4_scale_ops(config, asked.requests);
  for (int pass = 0; pass < timer.rounds().passes; ++pass) {
    for (ScaleOp& op : ops) {
      for (const std::int64_t context : asked.contexts) {
        if (auto ok = measure_point(op, lane, timer, asked, context, pass == 0, out.left_out);
            !ok) {
          return ok.error();
        }
      }
    }
  }
  for (ScaleOp& op : ops) {
    fit(op.line);
    out.lines.push_back(std::move(op.line));
  }
  return {};
}

}  // namespace attnscope
