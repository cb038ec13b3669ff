// A stream of tokens as samples: windows of it, or whole documents.
//
// A window is `seq` input tokens from some position and, as labels, the token after each. Windows
// of a pass start at 0, seq, 2 seq, ..., in random order each at a token of its own: every token
// but the first is a label exactly once a pass. The last window may be shorter: its rest is token 0
// with label -1 (ignored), of the document before it.
//
// A document of n tokens takes n - 1 places of a row, for its last token is a label alone; what is
// left of the row is a document of its own. One that does not fit into a row is dropped, cut or
// split, as asked, and counted. Documents of which no token is trained are dropped and counted as
// well.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/row_options.h"
#include "data/row_source.h"
#include "data/token_stream.h"

namespace octet {

// A document, a part of one, or a window.
struct Piece {
  int64_t first = 0;     // in the stream
  int64_t n = 0;         // tokens
  int64_t document = 0;  // that it is of
  int64_t places() const { return n - 1; }
};

// The pieces of all documents of a stream, which is read once.
struct Pieces {
  std::vector<Piece> all;
  int64_t n_documents = 0;
  int64_t n_too_long = 0;        // documents
  int64_t n_lost_tokens = 0;     // of them, that are in no piece
  int64_t n_without_labels = 0;  // pieces that are left out
  int64_t longest = 0;           // tokens of a document
};
Pieces find_pieces(const TokenStream& stream, const RowOptions& options);

// To train on: documents where they are packed, else windows. Throws Error{bad_data} where there is
// none.
std::shared_ptr<const RowSource> training_text(const TokenStream& stream,
                                               const RowOptions& options);

// The documents that find_pieces found with these options, each a sample.
std::shared_ptr<const RowSource> document_samples(const TokenStream& stream,
                                                  const RowOptions& options, Pieces pieces);

// The start of a stream: windows of its first `max_tokens`, or the documents until they hold so
// many, where rows come in several lengths those of each length in order, the shortest first.
std::shared_ptr<const RowSource> evaluation_text(const TokenStream& stream,
                                                 const RowOptions& options, int64_t max_tokens);

// What evaluation_text() reads of packed documents with these arguments.
struct EvaluatedDocuments {
  int64_t n = 0, n_all = 0;  // documents; of some of the n a part alone
  bool is_all = true;        // each token of all documents
};
EvaluatedDocuments evaluated_documents(const TokenStream& stream, const RowOptions& options,
                                       int64_t max_tokens);

}  // namespace octet
