#include "app/views/batch_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "engine/io/plural.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::string share_of(const char* one, const char* many, std::int64_t n, std::int64_t tokens) {
  return fmt::format("{} ({})", plural(n, one, many), plural(tokens, "token", "tokens"));
}

std::string graph_text(const SessionInfo& info, const BatchPlan& plan) {
  if (plan.graph == 0) return fmt::format("No graph replays it: {}.", plan.why_none);
  std::string text =
      fmt::format("The graph of {} replays it", plural(plan.graph, "token", "tokens"));
  text += plan.padding() == 0
              ? std::string(": no token is padding")
              : fmt::format(": {} padding, with slot -1 and length 0, {} nothing",
                            plural(plan.padding(), "token is", "tokens are"),
                            agree(plan.padding(), "writes and reads", "write and read"));
  if (!plan.uniform) text += "; not one for decodes of one length, since theirs differ";
  const bool on_gpu = std::ranges::find(info.lane_of, "cuda") != info.lane_of.end();
  return text + (on_gpu ? "." : ". This run has no GPU: every op runs by itself.");
}

std::string order_text(const BatchPlan& plan, std::int64_t threshold) {
  const std::string rule = fmt::format("A request decodes with up to {} in a step",
                                       plural(threshold, "token", "tokens"));
  if (plan.rows.empty()) return rule + ".";
  if (plan.moved == 0) return rule + "; decodes stand first as they are.";
  return fmt::format("{}; {} change places so that decodes stand first.", rule,
                     plural(plan.moved, "request", "requests"));
}

std::string chunks_text(const PrefillChunks& chunks, const BatchPlan& plan) {
  std::string text = chunks.ratio <= 0 ? std::string("Layers with a window alone")
                                       : fmt::format("Layers of ratio {}", chunks.ratio);
  const auto count = std::ssize(chunks.chunks);
  text += fmt::format(" gather {} in {}: ", plural(plan.prefills(), "prefill", "prefills"),
                      plural(count, "chunk", "chunks"));
  std::int64_t shown = 0;
  for (const PrefillChunk& chunk : chunks.chunks) {
    if (++shown > 3) {
      text += fmt::format(", and {} more", count - 3);
      break;
    }
    text += fmt::format("{}{} x ({} entries + {} window rows) = {}", shown > 1 ? ", " : "",
                        chunk.end - chunk.begin, format_count(chunk.compressed),
                        format_count(chunk.gathered), format_count(chunk.area()));
  }
  return text + fmt::format(" rows, of {} at most.", format_count(chunks.limit));
}

// "2 drafts are verified, 1 holds. The draft layer drafts for 3 requests." Once the step has
// sampled.
std::string drafts_text(const SessionInfo& info, const StepTrace& step) {
  const auto tokens_of = [&](int layer) -> const TapCopy* {
    const OpTrace* op = step.find(layer, AS_OP_SAMPLE);
    const TapCopy* tap = op != nullptr ? op->tap("tokens") : nullptr;
    return tap != nullptr && tap->value.data != nullptr ? tap : nullptr;
  };
  const StepMetadata& m = step.metadata;
  const TapCopy* sampled = tokens_of(-1);
  if (sampled == nullptr) return {};
  std::int64_t verified = 0, held = 0, requests = 0;
  bool holds = true;
  for (std::size_t i = 0; i < m.sample_rows.size(); ++i) {
    if (i == 0 || m.sample_request[i] != m.sample_request[i - 1]) {
      ++requests;
      holds = true;
      continue;
    }
    const std::int32_t before = *at<std::int32_t>(sampled->value, static_cast<std::int64_t>(i) - 1);
    ++verified;
    holds = holds && before == m.tokens[static_cast<std::size_t>(m.sample_rows[i])];
    held += holds ? 1 : 0;
  }
  std::string text;
  if (verified > 0) {
    text = fmt::format("{} verified, {}.", plural(verified, "draft is", "drafts are"),
                       plural(held, "holds", "hold"));
  }
  if (info.config.draft_layers == 0 || tokens_of(info.config.layers.back()) == nullptr) return text;
  return text + fmt::format("{}The draft layer drafts for {}.", text.empty() ? "" : " ",
                            plural(requests, "request", "requests"));
}

}  // namespace

BatchRules batch_rules(const SessionInfo& info) {
  return batch_rules(info.config, info.layout, info.draft_tokens, info.limits.token_budget);
}

std::string batch_line(const BatchPlan& plan) {
  std::string text;
  if (plan.decodes > 0) text = share_of("decode", "decodes", plan.decodes, plan.decode_tokens);
  if (plan.prefills() > 0) {
    text += (text.empty() ? "" : ", ") +
            share_of("prefill", "prefills", plan.prefills(), plan.prefill_tokens());
  }
  if (text.empty()) text = "no request";
  return text + (plan.graph > 0 ? fmt::format(", graph of {}", plan.graph) : ", no graph");
}

BatchView batch_view(const SessionInfo& info, const StepTrace& step) {
  BatchView view;
  const BatchRules rules = batch_rules(info);
  view.plan = batch_plan(step.metadata, rules);
  const BatchPlan& plan = view.plan;
  view.order = order_text(plan, rules.decode_threshold);
  view.graph = graph_text(info, plan);
  view.drafts = drafts_text(info, step);
  view.sentence = fmt::format("Step {} computes {}: {}. {}", format_count(step.step),
                              plural(plan.tokens, "token", "tokens"), batch_line(plan),
                              plan.graph == 0 ? view.graph : std::string());
  if (plan.graph > 0) view.sentence.pop_back();
  for (const PrefillChunks& chunks : plan.chunks) view.chunks.push_back(chunks_text(chunks, plan));
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const BatchRow& row = plan.rows[i];
    BatchLine& line = view.rows.emplace_back();
    line.request = row.request;
    line.name = name_if_known(info, row.request);
    line.decode = row.decode;
    line.place = static_cast<std::int64_t>(i);
    line.row = row.row;
    line.query = row.query;
    line.computed = row.computed;
    line.length = row.length();
    for (const PrefillChunks& chunks : plan.chunks) {
      for (std::size_t c = 0; c < chunks.chunks.size() && !row.decode; ++c) {
        if (line.place < chunks.chunks[c].begin || line.place >= chunks.chunks[c].end) continue;
        line.chunks +=
            fmt::format("{}{} of {}", line.chunks.empty() ? "" : ", ", c + 1, chunks.chunks.size());
      }
    }
  }
  return view;
}

}  // namespace attnscope
