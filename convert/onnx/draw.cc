#include "convert/onnx/draw.h"

#include <algorithm>
#include <vector>

#include "tools/xml.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr int kRow = 34, kWidth = 760, kLine = 380, kTop = 70, kGap = 60;
constexpr const char* kConverted = "#1b7f4b";
constexpr const char* kStays = "#8a8a8a";
constexpr const char* kRaw = "#c0392b";
constexpr const char* kWriter = "#2c5d9e";

std::string escaped(const std::string& name) {
  constexpr std::size_t kMost = 44;
  std::string text = name.size() <= kMost ? name : "..." + name.substr(name.size() - kMost);
  for (char& c : text) {
    if (c < 0x20 || c >= 0x7f) c = '?';  // bytes above 0x7f, too
  }
  return tools::xml_escaped(text);
}

// Something on a stream: its place in the graph decides the order.
struct Event {
  int node;
  bool writes;  // drawn at the left, else at the right
  const char* colour;
  std::string text;
};

std::vector<Event> events_of(const Graph& graph, const Norms& norms, const Stream& stream) {
  std::vector<Event> events;
  for (const Edit& edit : stream.edits) {
    const int node = edit.uses.empty() ? 0 : edit.uses[0].node;
    events.push_back({node, true, kWriter, graph.node(node).op_type() + ": centre " + edit.tensor});
  }
  for (const Insert& insert : stream.inserts) {
    const bool raw = std::find(stream.taps.begin(), stream.taps.end(), insert.tensor) != stream.taps.end();
    events.push_back({graph.tensor(insert.tensor).producer, true, raw ? kRaw : kConverted,
                      (raw ? "raw tap, subtract its mean: " : "subtract the mean of ") + insert.tensor});
  }
  for (const int i : stream.norms) {
    const Norm& norm = norms.all[static_cast<std::size_t>(i)];
    events.push_back({norm.root, false, stream.converted ? kConverted : kStays,
                      (stream.converted ? "RMSNorm " : "LayerNorm ") + norm.name});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.node < b.node; });
  return events;
}

std::string text_at(int x, int y, const char* anchor, const char* colour, const std::string& text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y, anchor, colour,
                     escaped(text));
}

}  // namespace

std::string draw_streams(const Graph& graph, const Norms& norms, const Plan& plan) {
  std::string body;
  int height = kTop;
  for (std::size_t s = 0; s < plan.streams.size(); ++s) {
    const Stream& stream = plan.streams[s];
    const auto events = events_of(graph, norms, stream);
    const int x = kLine + static_cast<int>(s) * (kWidth + kGap);
    const int bottom = kTop + static_cast<int>(events.size() + 1) * kRow;
    const char* colour = stream.converted ? kConverted : kStays;
    height = std::max(height, bottom + kRow);
    body += text_at(x, 30, "middle", colour,
                    fmt::format("stream {}: {} norms, {}", s, stream.norms.size(),
                                stream.converted ? "converted" : refusal_name(stream.code)));
    body += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"6\"/>\n", x,
                        kTop - 20, x, bottom, colour);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const Event& event = events[i];
      const int y = kTop + static_cast<int>(i) * kRow + kRow / 2;
      const int from = event.writes ? x - 40 : x, to = event.writes ? x - 5 : x + 40;
      body += fmt::format(
          "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"2\" marker-end=\"url(#tip)\"/>\n",
          from, y, to, y, event.colour);
      body += text_at(event.writes ? x - 46 : x + 52, y + 4, event.writes ? "end" : "start", event.colour, event.text);
    }
  }
  if (plan.streams.empty()) body += text_at(kLine, kTop, "middle", kStays, "no stream is read by a LayerNorm");
  const int columns = std::max(1, static_cast<int>(plan.streams.size()));
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n"
             "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"6\" refY=\"3\" orient=\"auto\">"
             "<path d=\"M0,0 L6,3 L0,6 z\"/></marker></defs>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
             columns * (kWidth + kGap), height) +
         body + "</svg>\n";
}

}  // namespace rmsnorm::convert::onnx
