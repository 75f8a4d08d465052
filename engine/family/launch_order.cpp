#include "engine/family/launch_order.h"

#include <algorithm>
#include <map>

namespace attnscope {
namespace {

constexpr int kListStream = 1;

// By stream: how many of its ops are known to be done.
using Clock = std::map<int, int>;

void learn(Clock& clock, const Clock& other) {
  for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

// The nodes of a layer in the order in which they are launched.
std::vector<const Node*> launched(const LayerGraph& layer) {
  std::vector<const Node*> order;
  order.reserve(layer.nodes().size());
  for (const Node& node : layer.nodes()) order.push_back(&node);
  for (const Node& node : layer.nodes()) {
    if (node.before() == AS_OP_COUNT) continue;
    const auto from = std::ranges::find(order, &node);
    const auto to = std::ranges::find(order, node.before(), [](const Node* n) { return n->op(); });
    if (to < from) std::rotate(to, from, from + 1);
  }
  return order;
}

class Scheduler {
 public:
  explicit Scheduler(const ModelGraph& graph) : graph_(graph) {}

  std::vector<Launch> schedule(bool lists) {
    for (const Node* node : launched(graph_.before)) {
      if (lists && makes_list(node->op())) put(*node, -1, kListStream);
    }
    for (int i = 0; i < static_cast<int>(graph_.layers.size()); ++i) {
      if (i != graph_.draft_layer) layer(i);
    }
    first_ = launches_.size();
    for (const Node* node : launched(graph_.after)) put(*node, -1, 0);
    if (graph_.draft_layer >= 0) layer(graph_.draft_layer);
    return std::move(launches_);
  }

 private:
  void layer(int i) {
    first_ = launches_.size();
    for (const Node* node : launched(graph_.layer(i))) put(*node, i, node->branch());
    join();
  }

  struct Put {
    const Node* node;
    int stream, count;  // its place on the stream
    Clock after;        // what the stream knows once it is done
  };

  // The newest op put on each stream that the node reads from.
  std::map<int, std::size_t> sources(const Node& node, int layer) const {
    std::map<int, std::size_t> from;
    for (std::size_t i = 0; i < puts_.size(); ++i) {
      // What other layers have put out reaches this one by way of the main path.
      const bool near = launches_[i].layer == layer || launches_[i].stream == kListStream;
      if (near && depends(node, *puts_[i].node)) from[puts_[i].stream] = i;
    }
    return from;
  }

  void put(const Node& node, int layer, int stream) {
    const bool opens = std::none_of(puts_.begin() + static_cast<std::ptrdiff_t>(first_),
                                    puts_.end(), [&](const Put& p) { return p.stream == stream; });
    Launch launch{node.op(), layer, stream, {}, {}};
    auto from = sources(node, layer);
    Clock& known = known_[stream];
    if (stream != 0 && opens) {
      const auto main = from.find(0);
      // Where nothing of the layer is read, from where it begins.
      const std::size_t at = main != from.end() ? main->second + 1 : first_;
      if (main != from.end()) learn(known, puts_[main->second].after);
      std::vector<int>& starts = at < launches_.size() ? launches_[at].starts : launch.starts;
      starts.insert(std::ranges::upper_bound(starts, stream), stream);
    }
    std::erase_if(from, [&](const auto& source) {
      return source.first == stream || known[source.first] >= puts_[source.second].count;
    });
    // Whoever has waited for another of them has its work behind it too.
    for (auto it = from.begin(); it != from.end();) {
      const bool implied = std::ranges::any_of(from, [&](const auto& source) {
        return source.first != it->first &&
               known_[source.first][it->first] >= puts_[it->second].count;
      });
      it = implied ? from.erase(it) : std::next(it);
    }
    for (const auto& source : from) {
      launch.after.push_back(source.first);
      learn(known, known_[source.first]);
    }
    const int count = ++known[stream];
    puts_.push_back({&node, stream, count, known});
    launches_.push_back(std::move(launch));
  }

  // What a layer has put on other streams is done before the next one begins.
  void join() {
    Clock& main = known_[0];
    for (std::size_t i = first_; i < puts_.size(); ++i) {
      const Put& p = puts_[i];
      if (main[p.stream] >= p.count) continue;
      launches_.back().after.push_back(p.stream);
      learn(main, known_[p.stream]);
    }
  }

  const ModelGraph& graph_;
  std::vector<Launch> launches_;
  std::vector<Put> puts_;  // of the same
  std::map<int, Clock> known_;
  std::size_t first_ = 0;  // of the layer
};

}  // namespace

bool makes_list(as_op_id op) {
  return as_op_role(op) != AS_ROLE_COPY && as_op_has(op, AS_BY_ENGINE) == 0;
}

std::vector<Launch> launch_order(const ModelGraph& graph, bool lists) {
  return Scheduler(graph).schedule(lists);
}

std::vector<Launch> on_one_stream(std::vector<Launch> order) {
  for (Launch& launch : order) launch = {launch.op, launch.layer, 0, {}, {}};
  return order;
}

}  // namespace attnscope
