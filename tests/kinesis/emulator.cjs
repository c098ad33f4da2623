// Kinesis and DynamoDB on two free ports of 127.0.0.1, which are printed; it ends when its input does.
const options = { createStreamMs: 0, deleteStreamMs: 0, updateStreamMs: 0, createTableMs: 0, deleteTableMs: 0, updateTableMs: 0, shardLimit: 100 }
const kinesis = require('kinesalite')(options)
const dynamodb = require('dynalite')(options)
kinesis.listen(0, '127.0.0.1', () =>
  dynamodb.listen(0, '127.0.0.1', () => console.log(JSON.stringify([kinesis.address().port, dynamodb.address().port]))),
)
process.stdin.on('end', () => process.exit(0)).resume()
